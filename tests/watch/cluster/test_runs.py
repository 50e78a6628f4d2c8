"""Recorded runs of every target from start to end: phases, rows, results, restarts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from itertools import groupby

import pytest

from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import JOB
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import read_pod
from stepset.watch.cluster.status import status_of, success_confirmed
from stepset.watch.list_watch import Change
from stepset.watch.present.sentences import last_restart
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import failure, final, left, phases, seen, statuses, stream

GOOD = ["Pending (Starting)", "Running", "Succeeded"]
BAD = ["Pending (Starting)", "Running", "Failed"]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("jobset_succeeds", {"loss": 0.25, "world": "4"}),
        ("jobset_with_a_role_succeeds", [1, 2]),
        ("trainjob_succeeds", "done"),
        ("job_succeeds", {"acc": 0.9}),
        ("statefulset_succeeds", [0]),
        ("mpi_succeeds", "mpi"),
    ],
)
class TestSuccessfulRun:
    def test_goes_through_its_phases(self, name: str, result: object) -> None:
        assert phases(name) == GOOD

    def test_has_rank_0s_result(self, name: str, result: object) -> None:
        assert final(name).result == result

    def test_has_times_in_order(self, name: str, result: object) -> None:
        status = final(name)
        assert status.started is not None and status.finished is not None
        assert 0 < status.created <= status.started <= status.finished

    def test_has_only_ranks_that_succeeded(self, name: str, result: object) -> None:
        status = final(name)
        ranks = [row for row in status.ranks if row.rank is not None]
        assert [row.rank for row in ranks] == list(range(status.world_size or -1))
        assert {row.state for row in ranks} == {"Succeeded"}
        assert all(row.pod.startswith("run-") and row.node.startswith("node-") for row in status.ranks)


class TestSuccess:
    """A success is reported once a Job's status records that all of its pods have succeeded."""

    @pytest.mark.parametrize("name", ["jobset_succeeds", "trainjob_succeeds", "job_succeeds"])
    def test_is_reported_once_the_job_has_recorded_it_before_the_workload_ends(self, name: str) -> None:
        objects, status = first_success(stream(name))
        assert objects.workload is not None and objects.workload.ended == ""
        assert all(pod.succeeded for pod in objects.pods) and len(objects.pods) == 2
        recorded = [job.succeeded for job in objects.jobs] or [objects.workload.succeeded]
        assert sum(recorded) == 2
        assert status.finished == max(pod.end.at or 0 for pod in objects.pods if pod.end is not None)
        assert (status.result, status.failure) == (final(name).result, None)

    @pytest.mark.parametrize("change", ["no agent", "restartable container", "a sidecar"])
    def test_needs_the_phase_of_the_pods_if_exit_code_0_may_not_be_final(self, change: str) -> None:
        objects, _ = first_success(altered(each, change) for each in stream("jobset_succeeds"))
        assert [pod.phase for pod in objects.pods] == ["Succeeded", "Succeeded"]

    @pytest.mark.parametrize("name", ["jobset_with_a_role_succeeds", "mpi_succeeds"])
    def test_is_reported_by_the_controllers_while_other_pods_run(self, name: str) -> None:
        objects, _ = first_success(stream(name))
        assert objects.workload is not None and objects.workload.ended == "Succeeded"

    @pytest.mark.parametrize("change", ["another tool's", "pods are deleted", "restarting", "one pod is missing"])
    def test_is_reported_by_the_controllers_if_pods_may_follow(self, change: str) -> None:
        objects, _ = first_success(altered(each, change) for each in stream("jobset_succeeds"))
        assert objects.workload is not None and objects.workload.ended == "Succeeded"


def first_success(changes: Iterable[Change]) -> tuple[RunObjects, RunStatus]:
    """The objects and the status when a run is first reported as succeeded."""
    objects = RunObjects("run")
    for change in changes:
        if objects.see(change) and (status := status_of(objects, Reports(), 0.0)).phase is Phase.SUCCEEDED:
            return objects, status
    raise AssertionError("the run never succeeded")


def altered(change: Change, how: str) -> Change:
    """The change with an altered object."""
    data = deepcopy(dict(change.object))
    if data["kind"] == "JobSet":
        if how == "another tool's":
            del data["metadata"]["labels"][JOB]
        elif how == "restarting":
            data.setdefault("status", {}).setdefault("conditions", []).append(
                {"type": "RestartingJobSet", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}
            )
        elif how == "one pod is missing":
            data["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 3
    elif data["kind"] == "Pod":
        (container,) = data["spec"]["containers"]
        if how == "pods are deleted":
            data["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
        elif how == "no agent":
            container["command"] = ["python", "train.py"]
        elif how == "restartable container":
            container["restartPolicy"] = "Always"
        elif how == "a sidecar":
            data["spec"]["containers"].append({"name": "sidecar"})
    return Change(change.verb, data)


@pytest.mark.parametrize(
    "name",
    ["jobset_fails", "trainjob_fails", "job_fails", "statefulset_fails", "mpi_rank_fails", "jobset_takes_too_long"],
)
def test_a_run_that_fails_goes_through_its_phases(name: str) -> None:
    assert phases(name) == BAD


def test_roles_have_rows_without_ranks_and_are_stopped_at_the_end() -> None:
    rows = {row.source: row.state for row in final("jobset_with_a_role_succeeds").ranks}
    assert rows == {"rank 0": "Succeeded", "rank 1": "Succeeded", "monitor-0": "Stopped", "prepare-0": "Succeeded"}


def test_a_run_is_pending_while_only_a_role_with_before_runs() -> None:
    seen = [s for s in statuses("jobset_with_a_role_succeeds") if s.ranks and s.ranks[-1].source == "prepare-0"]
    before = [s for s in seen if s.ranks[-1].state == "Running" and s.world_size and s.ranks[0].rank is None]
    assert before and {s.phase for s in before} == {Phase.PENDING}
    started = final("jobset_with_a_role_succeeds").started
    assert started is not None and all(s.started is None for s in before)


class TestMpi:
    def test_a_launcher_has_its_own_row(self) -> None:
        rows = [(row.source, row.state) for row in final("mpi_succeeds").ranks]
        assert rows == [("rank 0", "Succeeded"), ("rank 1", "Succeeded"), ("launcher", "Succeeded")]

    def test_a_rank_that_the_launcher_reports_is_in_its_own_pod(self) -> None:
        found, status = failure("mpi_rank_fails"), final("mpi_rank_fails")
        assert (found.rank, found.pod) == (1, status.ranks[1].pod)
        assert found.pod.startswith("run-node-0-1-")
        assert [row.state for row in status.ranks] == ["Stopped", "Failed", "Failed"]


class TestRestarts:
    @pytest.mark.parametrize(
        "name",
        [
            "jobset_starts_again_and_succeeds",
            "trainjob_starts_again_and_succeeds",
            "jobset_is_evicted_and_starts_again",
            "node_lost",
        ],
    )
    def test_of_the_gang_are_reported_with_the_reason(self, name: str) -> None:
        # NodeLost is reported before, and not after the pod was deleted.
        found = [phase.partition(" ")[0] for phase in phases(name) if "NodeLost" not in phase]
        assert [phase for phase, _ in groupby(found)] == [
            "Pending",
            "Running",
            "Restarting",
            "Running",
            "Succeeded",
        ]
        status = final(name)
        assert (status.attempt, len(status.notes)) == (1, 1)
        assert status.notes[0].startswith("restart 1: rank 1 (pod run-node-0-1-")

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("jobset_is_evicted_and_starts_again", "was evicted: Eviction API: evicting"),
            ("preempted", "was preempted: default-scheduler: preempting to accommodate a higher priority pod"),
        ],
    )
    def test_have_the_clusters_reason(self, name: str, why: str) -> None:
        assert final(name).notes[0].endswith(why)

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            (
                "jobset_is_evicted_and_starts_again",
                r"on node-b\) was ended by the cluster: most likely an eviction, for example to drain its node; .*",
            ),
            ("preempted", r"on node-a\) was preempted: Preempted by pod \S+ on node node-a"),
            ("node_lost", r"on node-a\) was lost with its node: Marking for deletion Pod \S+"),
            (
                "jobset_starts_again_and_succeeds",
                r"on node-b\) failed: its exit code and its output no longer exist; .*",
            ),
            ("trainjob_starts_again_and_succeeds", r"on node-a\) failed: its exit code .*"),
        ],
    )
    def test_that_no_process_followed_are_explained_by_the_events(self, name: str, why: str) -> None:
        """The events about the pods and Jobs of an attempt exist longer than these pods and Jobs."""
        status = status_of(seen(left(name)), Reports(), 0.0)
        pod = re.escape(final(name).notes[0].partition("(pod ")[2].partition(" ")[0])
        assert re.fullmatch(rf"restart 1: rank 1 \(pod {pod} {why}", last_restart(status)), status.notes

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            (
                "preempted",
                r"rank 1 \(pod \S+\) was ended by the cluster: an eviction, a preemption or the drain of its node",
            ),
            ("node_lost", r"rank 1 \(pod \S+\) was lost with its node: Node is not ready"),
            (
                "jobset_starts_again_and_succeeds",
                "a pod of Job run-node-0 failed or was deleted, and it no longer exists",
            ),
        ],
    )
    def test_are_explained_in_part_if_only_warnings_are_read(self, name: str, why: str) -> None:
        warnings = [change for change in left(name) if change.object.get("type") != "Normal"]
        assert re.fullmatch(f"restart 1: {why}", last_restart(status_of(seen(warnings), Reports(), 0.0)))

    @pytest.mark.parametrize("field", ["created", "name"])
    def test_are_not_explained_by_the_events_of_another_run(self, field: str) -> None:
        """A deleted run may have had the same name. The name of another run may begin with the name of this run."""
        changes = left("preempted")
        if field == "created":
            meta = {**changes[0].object["metadata"], "creationTimestamp": "2026-11-21T04:20:00Z"}
            changes[0] = Change("ADDED", {**changes[0].object, "metadata": meta})
        else:
            changes = [_renamed(change) if change.object["kind"] == "Event" else change for change in changes]
        assert last_restart(status_of(seen(changes), Reports(), 0.0)) == ""

    def test_are_counted_in_the_failure(self) -> None:
        assert (failure("jobset_uses_up_its_restarts").restarts, final("jobset_uses_up_its_restarts").attempt) == (1, 1)

    def test_are_counted_in_the_rows(self) -> None:
        assert {row.restarts for row in final("jobset_starts_again_and_succeeds").ranks} == {1}

    def test_are_unschedulable_while_the_cluster_has_no_room(self) -> None:
        """The pod that preempted the gang uses its resources."""
        status = final("preempted")
        assert (status.phase, status.reason) == (Phase.RESTARTING, "Unschedulable")
        assert status.trouble is not None and "Insufficient stepset.test/slot" in status.trouble.message

    def test_follow_a_suspension(self) -> None:
        assert phases("jobset_is_suspended_and_resumed") == [
            "Pending (Starting)",
            "Running",
            "Suspended",
            "Restarting (Starting)",
            "Running",
            "Succeeded",
        ]

    def test_are_announced_while_the_rest_of_the_gang_ends(self) -> None:
        notes = {note for status in statuses("jobset_fails") for note in status.notes}
        assert len(notes) == 1
        assert notes.pop().endswith("ValueError: bad learning rate; the other pods are being stopped")


def _renamed(change: Change) -> Change:
    """Returns the event with the name of an object of the run `run-other`."""
    about = change.object["involvedObject"]
    name = about["name"].replace("run-", "run-other-")
    return Change(change.verb, {**change.object, "involvedObject": {**about, "name": name}})


class TestStatefulSets:
    def test_restart_a_single_pod(self) -> None:
        status = final("statefulset_starts_one_again")
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 0)
        assert [row.restarts for row in status.ranks] == [0, 1]
        notes = {note for each in statuses("statefulset_starts_one_again") for note in each.notes}
        assert len(notes) == 1 and notes.pop().endswith("exited with code 1: ValueError: once")

    def test_replace_a_pod_that_was_evicted(self) -> None:
        assert phases("statefulset_is_evicted") == [
            "Pending (Starting)",
            "Running",
            "Restarting (Starting)",
            "Running",
        ]
        status = final("statefulset_is_evicted")
        assert [row.restarts for row in status.ranks] == [0, 1]
        assert status.notes[0].endswith("was evicted: Eviction API: evicting")

    def test_that_are_scaled_to_zero_are_suspended(self) -> None:
        assert phases("statefulset_is_scaled_to_nothing")[-1] == "Suspended"
        assert {row.state for row in final("statefulset_is_scaled_to_nothing").ranks} == {"Stopped"}


class TestElasticWorlds:
    def test_run_once_the_minimum_of_nodes_runs(self) -> None:
        first = next(s for s in statuses("elastic_node_is_evicted") if s.phase is Phase.RUNNING)
        assert sorted(row.state for row in first.ranks) == ["Pending", "Running"]

    def test_continue_while_a_node_is_replaced(self) -> None:
        assert phases("elastic_node_is_evicted") == ["Pending (Starting)", "Running", "Succeeded"]
        status = final("elastic_node_is_evicted")
        assert [row.restarts for row in status.ranks] == [0, 1]
        assert status.notes[0].endswith("was evicted: Eviction API: evicting")

    def test_wait_for_the_success_of_node_0_which_has_the_result(self) -> None:
        changes = stream("elastic_node_is_evicted")
        early = [each for each in changes if each.object["kind"] != "Pod" or not read_pod(each.object, False).succeeded]
        for known, confirmed in ((early, False), (changes, True)):
            objects = seen(known)
            assert objects.workload is not None and objects.workload.ended == "Succeeded"
            assert success_confirmed(objects) is confirmed

    def test_fail_with_the_pod_that_exceeded_the_restarts(self) -> None:
        found, status = failure("elastic_nodes_fail_too_often"), final("elastic_nodes_fail_too_often")
        assert found.pod == status.ranks[1].pod
        assert [(row.state, row.restarts) for row in status.ranks] == [("Stopped", 0), ("Failed", 1)]
