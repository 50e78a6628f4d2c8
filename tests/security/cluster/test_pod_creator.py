"""A user who can create pods in the namespace cannot end, finish, forge, read or restart the run of another user."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stepset.run_status import Phase
from stepset.targets.metadata import VERDICT
from tests.cluster.forged import WAITS, forged_pods
from tests.cluster.runs import VOLCANO, Runs
from tests.cluster.stage import Stage, missing_lines
from tests.cluster.testbed.objects import Objects
from tests.waiting import until

pytestmark = pytest.mark.cluster

COUNTS = "if rank == 0: pathlib.Path(os.environ['STEPSET_RESULT_FILE']).write_text(json.dumps({'lines': count}))"


@contextmanager
def program(runs: Runs, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the command line, which ends with the block."""
    with runs.program(*words) as process:
        try:
            yield process
        finally:
            process.kill()


def status_of(runs: Runs, name: str = "run") -> dict[str, Any]:
    """The state that `stepset status` prints."""
    done = runs.cli("status", name, "--output", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("runs", ["jobset", "trainjob", "job", "statefulset", VOLCANO], indirect=True)
def test_forged_pods_change_nothing_that_any_command_shows(runs: Runs, stage: Stage, pod_creator: Objects) -> None:
    fields = stage.job("count_until('end')", COUNTS)
    handle, listener = runs.start(**fields)
    listener.wait_for_line("line", count=4)
    pods = [pod["metadata"]["name"] for pod in runs.pods()]
    with program(runs, "wait", "run") as waiting, program(runs, "logs", "run", "--follow") as following:
        forged = forged_pods(runs, runs.pods()[0])
        for pod in forged:
            pod_creator.create(pod, runs.namespace)

        names = {pod["metadata"]["name"] for pod in forged} - {WAITS}

        def ended() -> bool:
            seen = pod_creator.get("pods", runs.namespace)["items"]
            # The Job's controller may delete a pod that claims the index of another one.
            return all(
                pod["status"]["phase"] in ("Succeeded", "Failed") for pod in seen if pod["metadata"]["name"] in names
            )

        assert until(ended, 180)
        before = sum("line" in line.text for line in listener.lines)
        listener.wait_for_line("line", count=before + 20)
        began = time.monotonic()
        status = status_of(runs)
        assert (status["phase"], status["attempt"]) == ("Running", 0)
        assert [row["pod"] for row in status["ranks"]] == pods
        listed = runs.cli("list", "--output", "json")
        assert [(each["name"], each["phase"]) for each in json.loads(listed.stdout)["items"]] == [("run", "Running")]
        assert time.monotonic() - began < 60
        assert waiting.poll() is None and following.poll() is None
        stage.say("end")
        final = handle.wait()
        assert waiting.wait(120) == 0
        shown, _ = following.communicate(timeout=120)
    assert final.phase is Phase.SUCCEEDED
    assert set(final.result) == {"lines"}
    assert missing_lines(listener.lines, "rank 0") == missing_lines(listener.lines, "rank 1") == ""
    assert not [line for line in listener.lines if "FORGED" in line.text]
    assert "FORGED" not in shown + runs.cli("logs", "run").stdout
    assert {status.attempt for status in listener.statuses} == {0}
    assert {status.phase for status in listener.statuses} <= {Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED}
    assert "FORGED" not in json.dumps(status_of(runs)) and status_of(runs)["result"] == final.result


def test_a_forged_verdict_ends_neither_a_running_nor_a_suspended_run(runs: Runs, stage: Stage) -> None:
    """An account that may change JobSets could end the run; the annotation alone does not."""
    handle, listener = runs.start(**stage.job("count_until('end')", COUNTS))
    listener.wait_for_line("line", count=4)
    current = status_of(runs)
    forged = json.dumps({**current, "phase": "Succeeded", "result": "FORGED", "finished": current["created"]})
    words = ("annotate", "jobset/run", "-n", runs.namespace, f"{VERDICT}={forged}")
    runs.cluster.kubectl(*words)
    assert status_of(runs)["phase"] == "Running"
    assert runs.cli("wait", "run", "--timeout", "3s").returncode == 4
    patch = ("patch", "jobset/run", "-n", runs.namespace, "--type=merge", "-p")
    runs.cluster.kubectl(*patch, '{"spec": {"suspend": true}}')
    listener.wait_for(Phase.SUSPENDED)
    assert status_of(runs)["phase"] == "Suspended"
    assert [each["phase"] for each in json.loads(runs.cli("list", "--output", "json").stdout)["items"]] == ["Suspended"]
    assert runs.cli("wait", "run", "--timeout", "3s").returncode == 4
    assert not handle.ended(0)
    runs.cluster.kubectl(*patch, '{"spec": {"suspend": false}}')
    listener.wait_for(Phase.RUNNING)
    stage.say("end")
    assert handle.wait().phase is Phase.SUCCEEDED


@pytest.mark.parametrize("verdict", ["9" * 4301, '{"created": 1e308}', "[" * 100_000, '{"phase": "Succeeded"}'])
def test_an_unreadable_verdict_is_ignored(runs: Runs, stage: Stage, verdict: str) -> None:
    handle, listener = runs.start(**stage.job("count_until('end')", COUNTS, num_nodes=1))
    listener.wait_for_line("line", count=2)
    runs.cluster.kubectl("annotate", "jobset/run", "-n", runs.namespace, f"{VERDICT}={verdict}")
    assert status_of(runs)["phase"] == "Running"
    stage.say("end")
    assert handle.wait().phase is Phase.SUCCEEDED
