"""The state of a sidecar is not that of the rank beside it."""

from __future__ import annotations

from typing import Any

from stepset.run_status import FailureKind, Phase
from stepset.watch.cluster.pods import read_pod
from tests.watch.cluster.streams import failure, final, phases, statuses, stream, troubles


def test_sidecars_that_fail_do_not_fail_the_run() -> None:
    status = final("jobset_has_failing_sidecars")
    assert (status.phase, status.result) == (Phase.SUCCEEDED, [3])
    assert [(row.state, row.exit_code, row.restarts) for row in status.ranks] == [("Succeeded", 0, 0)] * 2


def test_sidecars_that_wait_for_a_restart_are_no_trouble_of_a_running_rank() -> None:
    assert phases("jobset_has_failing_sidecars") == ["Pending (Starting)", "Running", "Succeeded"]
    assert troubles("jobset_has_failing_sidecars") == []
    waits = [pod for pod in _pods("jobset_has_failing_sidecars") if pod.wait and pod.wait.reason == "CrashLoopBackOff"]
    assert any(pod.running for pod in waits), "the recording contains the state that this test is about"


def test_a_rank_that_has_ended_is_over_while_its_sidecars_are_stopped() -> None:
    for name in ("jobset_has_failing_sidecars", "ended_by_its_node_beside_a_sidecar"):
        stopping = [pod for pod in _pods(name) if pod.over and pod.phase == "Running"]
        assert stopping
        assert {pod.end.exit_code for pod in stopping if pod.end is not None} == {0}
        assert not any(pod.done for pod in stopping), "the pod may still fail"


def test_the_exit_code_of_a_failed_pod_is_the_ranks_not_that_of_a_killed_sidecar() -> None:
    status = final("ended_by_its_node_beside_a_sidecar")
    assert [(row.state, row.exit_code) for row in status.ranks] == [("Succeeded", 0)]
    assert failure("ended_by_its_node_beside_a_sidecar").kind is FailureKind.DEADLINE_EXCEEDED
    killed = [
        row["state"]["terminated"]["exitCode"]
        for change in stream("ended_by_its_node_beside_a_sidecar")
        for row in change.object.get("status", {}).get("initContainerStatuses", ())
        if "terminated" in row["state"]
    ]
    assert 137 in killed, "the recording contains the state that this test is about"


def test_a_sidecar_that_keeps_a_rank_from_starting_is_named() -> None:
    trouble = troubles("sidecar_never_starts")[-1]
    assert trouble.kind is FailureKind.INFRASTRUCTURE
    assert "cannot be started, as its container exporter ends again and again: CrashLoopBackOff: " in trouble.message
    assert statuses("sidecar_never_starts")[-1].ranks[0].exit_code is None


def test_the_problem_of_the_training_container_is_reported_before_that_of_a_sidecar() -> None:
    def waiting(name: str, reason: str) -> dict[str, Any]:
        return {"name": name, "state": {"waiting": {"reason": reason, "message": ""}}}

    rows = {
        "initContainerStatuses": [waiting("exporter", "CrashLoopBackOff")],
        "containerStatuses": [waiting("node", "ErrImageNeverPull")],
    }
    pod = read_pod({"metadata": {"name": "p"}, "status": {"phase": "Pending", **rows}}, deleted=False)
    assert pod.wait is not None
    assert pod.wait.reason == "ErrImageNeverPull"


def _pods(name: str) -> list[Any]:
    pods = [change for change in stream(name) if change.object["kind"] == "Pod"]
    return [read_pod(change.object, deleted=change.verb == "DELETED") for change in pods]
