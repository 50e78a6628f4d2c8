"""A node is gone for good: neither Job nor JobSet say so, and wait for ever; whoever follows the run does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stepset.watch.state import FailureKind, Phase
from tests.cluster.many import RESULT
from tests.cluster.runs import Runs
from tests.cluster.testbed import faults
from tests.cluster.testbed.layout import Choice

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

TRAIN = """
import json, os, time
print("attempt", os.environ["STEPSET_ATTEMPT"], flush=True)
time.sleep(0 if os.environ["STEPSET_ATTEMPT"] != "0" else 900)
""" + RESULT.format("os.environ['STEPSET_ATTEMPT']")


def impatient() -> dict[str, Any]:
    """A pod that is told to go two seconds after its node stops answering, not five minutes."""
    gone = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    tolerations = [{"key": f"node.kubernetes.io/{name}", **gone} for name in ("not-ready", "unreachable")]
    return {"tolerations": tolerations, "terminationGracePeriodSeconds": 3}


@contextmanager
def lost(runs: Runs, choice: Choice, pod: dict[str, Any]) -> Iterator[str]:
    """The node of a pod has lost its power; it has it again afterwards."""
    name = str(pod["spec"]["nodeName"])
    node = faults.node_named(choice, name)
    faults.power_off(choice, node)
    try:
        yield name
    finally:
        faults.start_kubelet(choice, node)
        runs.cluster.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=180s")


def test_its_pods_are_released_where_the_job_says_so_and_the_gang_starts_elsewhere(
    runs: Runs, testbed_choice: Choice
) -> None:
    restart = {"lost_node": "release", "lost_node_after": "5s", "max_restarts": 0}
    handle, heard = runs.start(TRAIN, num_nodes=2, restart=restart, pod_template=impatient())
    heard.wait_for_line("attempt 0", 2)
    with lost(runs, testbed_choice, runs.pods()[1]) as node:
        status = handle.wait()
    assert (status.phase, status.attempt, status.result) == (Phase.SUCCEEDED, 1, "1")
    assert any(seen.reason == "NodeLost" for seen in heard.statuses)
    told = [seen.trouble for seen in heard.statuses if seen.trouble is not None and seen.reason == "NodeLost"]
    assert told and all(node in trouble.message for trouble in told)


def test_else_the_run_is_told_to_be_stuck_on_it_and_given_up_when_patience_ends(
    runs: Runs, testbed_choice: Choice
) -> None:
    options = {"startup_timeout": 20.0}
    handle, heard = runs.start(TRAIN, num_nodes=2, pod_template=impatient(), options=options)
    heard.wait_for_line("attempt 0", 2)
    with lost(runs, testbed_choice, runs.pods()[1]) as node:
        status = handle.wait()
        assert status.phase is Phase.FAILED and status.failure is not None
        assert status.failure.kind is FailureKind.INFRASTRUCTURE
        assert node in status.failure.message
        diagnosed = runs.cli("diagnose", "run")
        assert diagnosed.returncode == 3 and node in diagnosed.stderr
