"""A step without rights prints a command; once an administrator has run it, the same step succeeds."""

from __future__ import annotations

from typing import Any

import pytest

from stepset_kfp.training.cleanup_training import cleanup_training
from stepset_kfp.training.wait_for_training import wait_for_training
from tests.cluster.remedies import Requester, succeeds_after_its_remedy
from tests.kfp.steps import ACCOUNT, Steps

pytestmark = pytest.mark.cluster


def requester(steps: Steps) -> Requester:
    return Requester(steps.cluster, steps.namespace, ("--account", f"{steps.namespace}/{ACCOUNT}"))


def refused(steps: Steps, code: int, message: str, *each_inputs: dict[str, Any], component: Any) -> str:
    """Runs steps at the same time; returns their logs if they lack rights, empty if they exit with `code`."""
    pods = [steps.start_other(component, **inputs) for inputs in each_inputs]
    codes = {steps.wait(pod) for pod in pods}
    logs = "\n".join(map(steps.log, pods))
    if codes == {3}:
        return logs
    assert codes == {code} and message in logs, logs
    return ""


def test_waiting_for_a_run_of_any_kind(bare_steps: Steps) -> None:
    bare_steps.prepare(role=False)

    def attempt() -> str:
        given = {"run": "nowhere", "timeout": 1}
        return refused(bare_steps, 2, "'nowhere' is not in namespace", given, component=wait_for_training)

    succeeds_after_its_remedy(requester(bare_steps), attempt, backend="kfp")


def test_deleting_one_run_and_those_of_the_pipeline_run(bare_steps: Steps) -> None:
    """One request reads a run by its name; the other reads the step's own pod first."""
    bare_steps.prepare(role=False)

    def attempt() -> str:
        inputs = ({"run": "some-run", "target": "job"}, {"target": "job"})
        return refused(bare_steps, 0, "", *inputs, component=cleanup_training)

    succeeds_after_its_remedy(requester(bare_steps), attempt, targets=["job"], backend="kfp")
