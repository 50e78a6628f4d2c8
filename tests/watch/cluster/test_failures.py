"""Why a run failed, and what failed first, from the recorded objects of a real cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stepset.run_status import Failure, FailureKind, Phase
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from tests.watch.cluster.streams import failure, final, seen, stream

Kind = FailureKind

# scenario -> kind, source, the message after the names of pod and node
ENDS: dict[str, tuple[FailureKind, str, str]] = {
    "jobset_fails": (Kind.USER_ERROR, "rank 1", "exited with code 1: ValueError: bad learning rate"),
    "jobset_runs_out_of_memory": (Kind.OUT_OF_MEMORY, "rank 1", "was killed by SIGKILL, out of memory."),
    "jobset_is_killed": (Kind.INFRASTRUCTURE, "rank 1", "was killed by SIGKILL from outside the run."),
    "jobset_exits_with_137": (Kind.INFRASTRUCTURE, "node 1", "exited with code 137 (SIGKILL), from outside the run."),
    "jobset_without_the_agent_fails": (Kind.USER_ERROR, "node 1", "exited with code 1: KeyError: 'lr'"),
    "jobset_without_the_agent_crashes": (Kind.USER_ERROR, "node 1", "exited with code 139 (SIGSEGV)."),
    "jobset_uses_up_its_restarts": (Kind.USER_ERROR, "rank 1", "exited with code 1: ValueError: attempt 1"),
    "jobset_pod_is_deleted": (
        Kind.INFRASTRUCTURE,
        "rank 1",
        "was ended from outside: its pod was deleted",
    ),
    "jobset_leaves_too_large_a_result": (
        Kind.REJECTED,
        "rank 0",
        "exited with code 72: the result is 5002 bytes, the limit is 4096; save it to storage and return its URI",
    ),
    "jobset_fails_before_its_nodes": (Kind.USER_ERROR, "prepare-0", "exited with code 1: OSError: no such data"),
    "jobset_fails_before_its_containers": (
        Kind.USER_ERROR,
        "rank 0",
        "failed, as its container fetch exited with code 4.",
    ),
    "command_missing": (
        Kind.REJECTED,
        "node 0",
        'could not be started: exec: "trainer-of-nowhere": executable file not found in $PATH: unknown',
    ),
    "command_missing_under_the_agent": (
        Kind.USER_ERROR,
        "rank 0",
        "exited with code 127: stepset: cannot start trainer-of-nowhere: not found on PATH",
    ),
    "refused_by_its_node": (
        Kind.INFRASTRUCTURE,
        "rank 0",
        "was refused by its node: Pod was rejected: Node didn't have enough resource: cpu, requested: 500000, used: 0,"
        " capacity: 2000",
    ),
    "evicted_by_its_node": (
        Kind.USER_ERROR,
        "rank 1",
        "was evicted: Pod ephemeral local storage usage exceeds the total limit of containers 20Mi.",
    ),
    "trainjob_fails": (Kind.USER_ERROR, "rank 0", "exited with code 1: ValueError: bad"),
    "job_fails": (Kind.USER_ERROR, "rank 1", "exited with code 3."),
    "statefulset_fails": (Kind.USER_ERROR, "rank 1", "exited with code 1: ValueError: bad"),
    "elastic_nodes_fail_too_often": (Kind.USER_ERROR, "rank 1", "exited with code 6."),
    "mpi_rank_fails": (Kind.USER_ERROR, "rank 1", "exited with code 1: ValueError: bad on 1"),
}


@pytest.mark.parametrize("name", ENDS)
class TestFirstFailure:
    def test_is_named_with_pod_node_and_reason(self, name: str) -> None:
        kind, who, what = ENDS[name]
        found = failure(name)
        assert (found.kind, found.message) == (kind, f"{who} (pod {found.pod} on {found.node}) {what}")
        assert found.rank == (int(who.split()[1]) if who.startswith("rank") else None)

    def test_is_in_a_row_with_state_failed_and_no_row_is_running(self, name: str) -> None:
        status, found = final(name), failure(name)
        assert status.phase is Phase.FAILED
        failed = {row.pod for row in status.ranks if row.state == "Failed"}
        assert found.pod in failed
        for row in status.ranks:
            assert row.state in ("Failed", "Stopped", "Succeeded"), row

    def test_has_advice(self, name: str) -> None:
        assert re.fullmatch(r"[A-Z].*\.", failure(name).advice)


class TestAftermath:
    def test_is_a_rank_that_was_stopped(self) -> None:
        found, status = failure("jobset_fails"), final("jobset_fails")
        assert found.aftermath == ("rank 0",)
        assert [(row.source, row.state, row.exit_code) for row in status.ranks] == [
            ("rank 0", "Stopped", 143),
            ("rank 1", "Failed", 1),
        ]

    def test_is_a_rank_that_ended_because_it_lost_its_peer(self) -> None:
        found = failure("jobset_fails_in_the_aftermath")
        assert (found.rank, found.signal, found.aftermath) == (1, 11, ("rank 0",))

    def test_includes_a_pod_that_was_killed_after_its_grace_period(self) -> None:
        """Without the agent, Python is process 1, ignores SIGTERM, and is killed after the grace period."""
        found = failure("jobset_without_the_agent_fails")
        assert found.aftermath == ("node 0",)
        stopped = final("jobset_without_the_agent_fails").ranks[0]
        assert (stopped.state, stopped.exit_code) == ("Stopped", 137)


class TestLastLines:
    def test_are_those_of_the_agents_verdict(self) -> None:
        found = failure("jobset_fails")
        assert found.error == found.tail[-1] == "ValueError: bad learning rate"
        assert found.tail[0].startswith("Traceback")

    def test_are_those_of_the_log_without_the_agent(self) -> None:
        found = failure("jobset_without_the_agent_fails")
        assert found.tail[0].startswith("Traceback") and found.tail[-1] == "KeyError: 'lr'"

    def test_are_also_in_the_rows(self) -> None:
        assert final("jobset_fails").ranks[1].last_line == "ValueError: bad learning rate"


class TestRunAsAWhole:
    @pytest.mark.parametrize("name", ["jobset_takes_too_long", "job_takes_too_long"])
    def test_exceeded_its_deadline_and_no_rank_is_named(self, name: str) -> None:
        found = failure(name)
        assert (found.kind, found.rank, found.pod) == (Kind.DEADLINE_EXCEEDED, None, "")
        assert found.message == "the run took longer than its deadline of 4s."
        assert {row.state for row in final(name).ranks} == {"Stopped"}

    @pytest.mark.parametrize(
        ("conditions", "without"),
        [
            pytest.param([], "", id="from events"),
            pytest.param(["FailureTarget"], "Event", id="from conditions"),
        ],
    )
    def test_exceeded_its_deadline_although_its_job_has_not_ended_yet(
        self, conditions: list[str], without: str
    ) -> None:
        changes = []
        for change in stream("jobset_takes_too_long"):
            each = dict(change.object)
            if each["kind"] == "Job":
                kept = [row for row in each["status"].get("conditions", []) if row["type"] in conditions]
                each["status"] = {**each["status"], "conditions": kept}
            if each["kind"] != without:
                changes.append(Change(change.verb, each))
        found = status_of(seen(changes), Reports(), 0.0).failure
        assert found is not None
        assert found.kind is Kind.DEADLINE_EXCEEDED

    @pytest.mark.parametrize("name", ["jobset_is_deleted", "jobset_is_deleted_in_the_foreground"])
    def test_was_cancelled_if_its_workload_was_deleted(self, name: str) -> None:
        found = failure(name)
        assert (found.kind, found.message) == (Kind.CANCELLED, "the run was cancelled: its JobSet was deleted.")
        assert {row.state for row in final(name).ranks} == {"Stopped"}


class TestEvents:
    def test_that_explain_the_failure_are_reported(self) -> None:
        assert failure("jobset_takes_too_long").events == (
            "DeadlineExceeded, job run-node-0: Job was active longer than specified deadline",
        )

    def test_that_repeat_the_failure_or_its_consequences_are_omitted(self) -> None:
        for name in ("jobset_fails", "jobset_uses_up_its_restarts", "command_missing", "refused_by_its_node"):
            for line in failure(name).events:
                assert "backoff limit" not in line and "failure policy" not in line and "max" not in line, name


def _changed(name: str, **status: Any) -> Failure:
    """The failure of a scenario's run if its failed pods have another status."""
    changes = []
    for change in stream(name):
        each = dict(change.object)
        if each["kind"] == "Pod" and each["status"]["phase"] == "Failed":
            each = {**each, "status": {**each["status"], **status}}
        changes.append(Change(change.verb, each))
    found = status_of(seen(changes), Reports(), 0.0).failure
    assert found is not None
    return found


def _ended(code: int, message: str = "", reason: str = "Error") -> list[dict[str, Any]]:
    at = {"startedAt": "2026-11-21T03:00:00Z", "finishedAt": "2026-11-21T03:01:00Z"}
    ended = {"exitCode": code, "reason": reason, **at, **({"message": message} if message else {})}
    return [{"name": "node", "state": {"terminated": ended}, "lastState": {}, "ready": False, "restartCount": 0}]


class TestPodWithoutAVerdict:
    @pytest.mark.parametrize(
        ("code", "kind"),
        [(70, Kind.RENDEZVOUS), (71, Kind.RENDEZVOUS), (72, Kind.REJECTED), (73, Kind.INFRASTRUCTURE)],
    )
    def test_is_judged_by_the_agents_exit_code(self, code: int, kind: FailureKind) -> None:
        assert _changed("jobset_leaves_too_large_a_result", containerStatuses=_ended(code)).kind is kind
        # Without the agent these codes have no meaning.
        assert _changed("jobset_without_the_agent_fails", containerStatuses=_ended(code)).kind is Kind.USER_ERROR

    def test_is_judged_by_the_end_of_its_log(self) -> None:
        """The whole container was killed, including the agent; the kubelet keeps the last lines."""
        log = '[rank 0] epoch 3\n[stepset] {"event": "exited", "rank": 0, "exit_code": 9, "at": 5.5}\n[rank 0] bye\n'
        found = _changed("jobset_leaves_too_large_a_result", containerStatuses=_ended(137, log, "OOMKilled"))
        assert (found.kind, found.rank, found.tail) == (Kind.OUT_OF_MEMORY, 0, ("epoch 3", "bye"))

    def test_is_out_of_memory_if_the_kubelet_reports_it_for_any_exit_code(self) -> None:
        """A child process was killed, and its parent failed as a result."""
        found = _changed("jobset_without_the_agent_fails", containerStatuses=_ended(1, reason="OOMKilled"))
        assert (found.kind, found.exit_code) == (Kind.OUT_OF_MEMORY, 1)


class TestEviction:
    LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."

    def test_because_of_the_node_is_infrastructure(self) -> None:
        """kubernetes v1.36 pkg/kubelet/eviction/eviction_manager.go: with the condition DisruptionTarget."""
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": self.LOW,
            "lastTransitionTime": "2026-11-21T03:00:30Z",
        }
        found = _changed("evicted_by_its_node", conditions=[target], message=self.LOW)
        assert found.kind is Kind.INFRASTRUCTURE
        assert found.message.endswith(f"was ended by its node: {self.LOW}")

    def test_because_of_exceeded_limits_is_user_error(self) -> None:
        assert failure("evicted_by_its_node").kind is Kind.USER_ERROR
