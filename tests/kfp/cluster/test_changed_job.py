"""A run that exists does not need its step's inputs again: the next pod of the step ends as the run does."""

import pytest

from stepset_kfp.training.distributed_train.component import distributed_train as component
from tests.kfp.node_names import step_node
from tests.kfp.steps import WAITS, Steps

pytestmark = pytest.mark.cluster

FAILS = WAITS.replace(
    "while not", "if (home / 'fail').exists(): raise ValueError('the data is damaged')\nwhile not"
).replace(
    "time.sleep(0.1)", "time.sleep(0.1)\n    if (home / 'fail').exists(): raise ValueError('the data is damaged')"
)


def ended(steps: Steps) -> bool:
    return any((each.get("status") or {}).get("terminalState") for each in steps.jobsets())


@pytest.mark.parametrize("pod", [step_node(), step_node(try_number=1)], ids=["restarted", "retried"])
@pytest.mark.parametrize("state", ["running", "succeeded", "failed", "suspended"])
def test_a_step_that_can_no_longer_read_its_job_ends_as_its_run(steps: Steps, state: str, pod: str) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(FAILS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    steps.cluster.kubectl("delete", "pod", first, "-n", steps.namespace, "--grace-period=0", "--force")
    (jobset,) = steps.jobsets()
    if state == "succeeded":
        (home / "go").touch()
    elif state == "failed":
        (home / "fail").touch()
    elif state == "suspended":
        patch = ("--type=merge", "-p", '{"spec": {"suspend": true}}')
        steps.cluster.kubectl("patch", "jobset", jobset["metadata"]["name"], "-n", steps.namespace, *patch)
        steps.cluster.wait("the pods to end", lambda: not steps.training_pods())
    if state in ("succeeded", "failed"):
        steps.cluster.wait("the run to end", lambda: ended(steps))
    invalid = {"job": {"num_nodes": "["}, "name": "Other!", "script": "gone.py", "target": "none", "log_ranks": "x"}
    second = steps.start_other(component, node=pod, on_interrupt="leave", **invalid)
    steps.wait_for_line(second, "it is resumed" if state == "suspended" else "reattaching to it")
    (home / "go").touch()
    assert steps.wait(second) == (1 if state == "failed" else 0), steps.log(second)
    assert [each["metadata"]["uid"] for each in steps.jobsets()] == [jobset["metadata"]["uid"]]
    if state == "failed":
        assert "ValueError: the data is damaged" in steps.log(second)
    else:
        assert (steps.out(second) / "run").read_text() == jobset["metadata"]["name"]
