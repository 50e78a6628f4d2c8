"""Why a run failed, and what failed first, from the recorded objects of a real cluster."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from stepset.run_status import Failure, FailureKind, Phase
from stepset.watch.advice import ADVICE
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import Object, failure, final, left, seen, stream

Kind = FailureKind

# scenario -> kind, source, the message after the names of pod and node
ENDS: dict[str, tuple[FailureKind, str, str]] = {
    "jobset_fails": (Kind.USER_ERROR, "rank 1", "exited with code 1: ValueError: bad learning rate"),
    "jobset_runs_out_of_memory": (Kind.OUT_OF_MEMORY, "rank 1", "was killed by SIGKILL, out of memory."),
    "jobset_is_killed": (Kind.INFRASTRUCTURE, "rank 1", "was killed by SIGKILL; who sent the signal is unknown."),
    "jobset_exits_with_137": (
        Kind.INFRASTRUCTURE,
        "node 1",
        "exited with code 137 (SIGKILL); who sent the signal is unknown.",
    ),
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
        ": the result is 5002 bytes, the limit is 4096; save it to storage and return its URI",
    ),
    "jobset_fails_before_its_nodes": (Kind.USER_ERROR, "prepare-0", "exited with code 1: OSError: no such data"),
    "jobset_fails_before_its_containers": (
        Kind.USER_ERROR,
        "rank 0",
        "failed, as its init container fetch exited with code 4.",
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
        where = f"{who} (pod {found.pod} on {found.node})"
        assert (found.kind, found.message) == (kind, f"{where}{what}" if what.startswith(":") else f"{where} {what}")
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
        assert (found.kind, found.message) == (
            Kind.CANCELLED,
            "the run was cancelled: its JobSet was deleted; its pods had 60 s to end.",
        )
        assert {row.state for row in final(name).ranks} == {"Stopped"}

    @pytest.mark.parametrize("gone", [False, True])
    def test_was_cancelled_and_its_pods_were_killed(self, gone: bool) -> None:
        """With a finalizer, a killed pod first gets a period of 0 s. Without one, it is removed while it runs."""
        changes, killed = [], set[str]()
        for change in stream("jobset_is_deleted_in_the_foreground"):
            each, about = change.object, change.object["metadata"]
            if each["kind"] != "Pod" or "deletionTimestamp" not in about:
                changes.append(change)
            elif about["uid"] not in killed:
                killed.add(about["uid"])
                changes.append(change)
                if not gone:
                    at_once = {**each, "metadata": {**about, "deletionGracePeriodSeconds": 0}}
                    changes.append(Change(change.verb, at_once))
                changes.append(Change("DELETED", each))
        found = status_of(seen(changes), Reports(), 0.0).failure
        assert found is not None
        assert found.message == "the run was cancelled: its JobSet was deleted; its pods were killed."


class TestEvents:
    def test_that_explain_the_failure_are_reported(self) -> None:
        assert failure("jobset_takes_too_long").events == (
            "DeadlineExceeded, job run-node-0: Job was active longer than specified deadline",
        )

    def test_that_repeat_the_failure_or_its_consequences_are_omitted(self) -> None:
        for name in ("jobset_fails", "jobset_uses_up_its_restarts", "command_missing", "refused_by_its_node"):
            for line in failure(name).events:
                assert "backoff limit" not in line and "failure policy" not in line and "max" not in line, name


def test_a_rank_without_its_peer_names_the_pod_that_had_succeeded() -> None:
    index, changes = "batch.kubernetes.io/job-completion-index", []
    for change in stream("jobset_fails_in_the_aftermath"):
        each = dict(change.object)
        if each["kind"] == "Pod" and each["status"]["phase"] == "Failed" and each["metadata"]["labels"][index] == "1":
            each["status"] = {
                **each["status"],
                "phase": "Succeeded",
                "containerStatuses": _ended(0, reason="Completed"),
            }
        changes.append(Change(change.verb, each))
    found = status_of(seen(changes), Reports(), 0.0).failure
    assert found is not None and found.rank == 0
    assert re.search(r" exited with code 1(, \S+)? after rank 1 had exited with code 0: \w+Error: ", found.message)


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


class TestMemoryLimit:
    """kubernetes v1.33 and later report the resources of a container in its status."""

    @staticmethod
    def of_container(memory: str) -> list[Object]:
        return [{**row, "resources": {"limits": {"memory": memory}}} for row in _ended(137, "bye\n", "OOMKilled")]

    def test_is_in_the_message_and_the_advice_names_its_field(self) -> None:
        found = _changed("jobset_without_the_agent_fails", containerStatuses=self.of_container("400Mi"))
        assert "out of memory (limit 400Mi)" in found.message
        assert found.advice.startswith("Increase resources_per_node.memory, or ")

    def test_is_not_in_the_message_of_another_failure(self) -> None:
        status = [{**row, "resources": {"limits": {"memory": "400Mi"}}} for row in _ended(1)]
        assert "limit" not in _changed("jobset_without_the_agent_fails", containerStatuses=status).message


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


FAILED_WITH = "Container node for pod ns/run-node-0-1-x2 failed with exit code {} matching FailJob rule at index {}"
DISRUPTED = "Pod ns/run-node-0-1-phzw5 has condition DisruptionTarget matching FailJob rule at index 0"
BACKOFF_LIMIT = "Job has reached the specified backoff limit"


def _left_without_pods(name: str) -> list[Object]:
    """The objects of a scenario's run after all of its pods were deleted; its events have expired."""
    return [deepcopy(dict(each.object)) for each in left(name) if each.object["kind"] not in ("Pod", "Event")]


def _first_read(objects: list[Object]) -> Failure:
    """The failure that a process sees that has not followed the run."""
    status = status_of(seen(Change("ADDED", each) for each in objects), Reports(), 0.0)
    assert status.phase is Phase.FAILED and status.failure is not None
    return status.failure


def _reports(job: Object, message: str, at: str) -> None:
    """Changes how a Job reports its failure."""
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}
    job["status"]["conditions"] = [{**failed, "lastTransitionTime": at}]


def _with_policy(message: str) -> Failure:
    """The failure without pods if a rule of the pod failure policy has matched, with this message."""
    (jobset, job) = _left_without_pods("jobset_leaves_too_large_a_result")
    _reports(job, message, "2026-11-21T03:00:00Z")
    return _first_read([jobset, job])


@pytest.mark.parametrize(
    "name",
    [
        "jobset_fails",
        "jobset_uses_up_its_restarts",
        "jobset_pod_is_deleted",
        "jobset_runs_out_of_memory",
        "elastic_nodes_fail_too_often",
        "mpi_rank_fails",
        "job_fails",
        "trainjob_fails",
    ],
)
class TestUnknownCause:
    """An error of the training code and a deleted pod leave the same message of the Job."""

    def test_is_stated_with_the_message_of_the_controller(self, name: str) -> None:
        found = _first_read(_left_without_pods(name))
        assert found.kind is Kind.LOST
        kind = {"job_fails": "Job", "trainjob_fails": "TrainJob"}.get(name, "JobSet")
        assert found.message == (
            f"{kind} run failed, and its failed pods no longer exist; the cause is unknown, and the controller reports:"
            f" {BACKOFF_LIMIT}"
        )
        assert (found.rank, found.pod, found.exit_code) == (None, "", None)

    def test_is_not_attributed_to_the_cluster(self, name: str) -> None:
        advice = _first_read(_left_without_pods(name)).advice
        assert "not the cause" not in advice
        assert "log storage" in advice and "--detach" in advice


class TestKindThatTheJobStates:
    def test_is_rejected_for_the_agents_exit_code(self) -> None:
        found = _first_read(_left_without_pods("jobset_leaves_too_large_a_result"))
        assert (found.kind, found.exit_code, found.advice) == (Kind.REJECTED, 72, ADVICE[Kind.REJECTED])
        assert found.pod.startswith("run-node-0-0-")
        assert found.message.startswith(
            "JobSet run failed, and its failed pods no longer exist: Container node for pod"
        )

    def test_is_user_error_for_a_final_exit_code(self) -> None:
        message = FAILED_WITH.format(3, 2)
        found = _with_policy(message)
        assert (found.kind, found.pod, found.exit_code) == (Kind.USER_ERROR, "run-node-0-1-x2", 3)
        assert found.message.endswith(f": {message}")
        assert "log storage" in found.advice and "fix the training code" in found.advice

    def test_is_infrastructure_for_a_disruption(self) -> None:
        found = _with_policy(DISRUPTED)
        assert (found.kind, found.pod) == (Kind.INFRASTRUCTURE, "run-node-0-1-phzw5")
        assert found.advice == ADVICE[Kind.INFRASTRUCTURE]

    def test_is_that_of_the_job_that_failed_first(self) -> None:
        """The launcher of MPI fails because a node was lost."""
        (jobset, launcher) = _left_without_pods("mpi_rank_fails")
        node = deepcopy(launcher)
        node["metadata"].update(name="run-node-0", uid="uid of run-node-0")
        _reports(node, DISRUPTED, "2020-01-01T00:00:00Z")
        assert _first_read([jobset, launcher, node]).kind is Kind.INFRASTRUCTURE
        _reports(node, DISRUPTED, "2030-01-01T00:00:00Z")
        assert _first_read([jobset, launcher, node]).kind is Kind.LOST


def test_a_pod_that_was_stopped_is_not_the_cause_if_another_pod_no_longer_exists() -> None:
    """Rank 1 failed and its pod was deleted, while the pod of rank 0, which the Job has stopped, still ends."""
    rank = "batch.kubernetes.io/job-completion-index"

    def of_rank(change: Change, number: str) -> bool:
        labels = change.object["metadata"].get("labels", {})
        return change.object["kind"] == "Pod" and bool(labels.get(rank) == number)

    ending = [
        each
        for each in stream("jobset_fails")
        if of_rank(each, "0") and each.object["metadata"].get("deletionTimestamp")
    ]
    assert ending
    found = _first_read([*_left_without_pods("jobset_fails"), dict(ending[0].object)])
    assert found.kind is Kind.LOST
    assert "the cause is unknown" in found.message


def test_of_two_deletions_in_the_same_second_the_first_is_the_cause() -> None:
    """A user deletes the pod of rank 1, and the Job deletes the other pod in the same second."""
    same = {"deletionTimestamp": "2026-11-21T04:12:36Z"}

    def in_the_same_second(change: Change) -> Change:
        meta = change.object["metadata"]
        meta = meta | same if meta.get("deletionGracePeriodSeconds") == 60 else meta
        return Change(change.verb, {**change.object, "metadata": meta})

    found = status_of(seen(map(in_the_same_second, stream("jobset_pod_is_deleted"))), Reports(), 0.0).failure
    assert found is not None
    assert (found.rank, found.aftermath) == (1, ("rank 0",))


@pytest.mark.parametrize(
    ("name", "number"), [("jobset_runs_out_of_memory", -1), ("jobset_uses_up_its_restarts", 0)], ids=["now", "earlier"]
)
def test_a_mount_that_succeeded_before_the_failure_is_not_shown(name: str, number: int) -> None:
    changes = stream(name)
    about = [change.object["metadata"] for change in changes if change.object["kind"] == "Pod"][number]
    mount = {
        "kind": "Event",
        "metadata": {"uid": "m", "name": "m", "namespace": "ns"},
        "involvedObject": {"kind": "Pod", "name": about["name"], "uid": about["uid"]},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'configmap "run-code" not found',
        "firstTimestamp": about["creationTimestamp"],
        "lastTimestamp": about["creationTimestamp"],
    }
    found = status_of(seen([Change("ADDED", mount), *changes]), Reports(), 0.0).failure
    assert found is not None and not [line for line in found.events if "FailedMount" in line]
    late = {**mount, "lastTimestamp": "2026-11-21T23:00:00Z"}
    found = status_of(seen([Change("ADDED", late), *changes]), Reports(), 0.0).failure
    assert found is not None and [line for line in found.events if "FailedMount" in line]
