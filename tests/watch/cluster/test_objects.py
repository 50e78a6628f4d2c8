"""Which objects belong to a run, and the state of a run whose workload no longer exists."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import run_of
from stepset.watch.cluster.status import all_ended, status_of, success_confirmed
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import Object, final, phases, seen, statuses, stream


def workload(name: str = "jobset_succeeds", index: int = 0) -> Object:
    return dict([c for c in stream(name) if c.object["kind"] == "JobSet"][index].object)


def with_metadata(each: Object, **fields: Any) -> Object:
    return {**each, "metadata": {**each["metadata"], **fields}}


def now(objects: RunObjects, at: float = 0.0) -> RunStatus:
    return status_of(objects, Reports(), at)


def until(name: str, phase: Phase) -> RunObjects:
    """The run at the change with which it enters a phase."""
    objects = RunObjects("run")
    for change in stream(name):
        objects.see(change)
        if now(objects).phase is phase:
            return objects
    raise AssertionError(phase)


class TestObjectsOfARun:
    def test_a_run_without_pods_has_a_state(self) -> None:
        status = now(seen([Change("ADDED", workload())]))
        assert (status.phase, status.reason, status.ranks) == (Phase.PENDING, "Starting", ())
        assert (status.name, status.job, status.backend, status.world_size) == ("run", "run", "kubernetes", 4)

    def test_a_run_without_objects_is_pending(self) -> None:
        assert (now(RunObjects("run")).phase, now(RunObjects("run")).name) == (Phase.PENDING, "run")

    def test_pods_may_arrive_before_their_workload(self) -> None:
        pods = [change for change in stream("jobset_succeeds") if change.object["kind"] == "Pod"]
        (job, *_) = [change for change in stream("jobset_succeeds") if change.object["kind"] == "Job"]
        objects = seen([*pods, job])
        assert now(objects).phase is Phase.PENDING
        objects.see(Change("ADDED", workload()))
        assert len(now(objects).ranks) == 4

    def test_events_about_a_workload_of_kueue_may_arrive_before_it(self) -> None:
        changes = stream("queued_and_let_in")
        (queued, *_) = [change for change in changes if change.object["kind"] == "Workload"]
        others = [change for change in changes if change.object["kind"] not in ("Workload", "Event")]
        about = {"kind": "Workload", "name": "w", "uid": queued.object["metadata"]["uid"]}
        event = {"kind": "Event", "metadata": {"uid": "e"}, "involvedObject": about, "reason": "Pending"}
        objects = seen([*others, Change("ADDED", event), queued])
        assert [each.uid for each in objects.events.of(["Pending"])] == ["e"]

    def test_pods_of_other_runs_are_ignored(self) -> None:
        objects = seen(stream("jobset_succeeds"))
        stray = [c.object for c in stream("jobset_fails") if c.object["kind"] == "Pod"]
        assert not objects.see(Change("ADDED", with_metadata(dict(stray[0]), labels={"stepset.dev/run": "other"})))
        # Pods of an earlier run with the same name are ignored, too.
        objects.see(Change("ADDED", stray[0]))
        assert now(objects) == final("jobset_succeeds")

    def test_a_new_workload_of_the_same_name_is_another_run(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("ADDED", with_metadata(workload(), uid="another")))
        status = now(objects)
        assert status.phase is Phase.LOST
        assert status.failure is not None and status.failure.kind is FailureKind.LOST

    def test_a_workload_is_identified_by_its_uid_if_known(self) -> None:
        objects = RunObjects("run", "another-uid")
        assert objects.see(Change("ADDED", workload())) and now(objects).phase is Phase.LOST

    def test_changes_of_an_earlier_run_of_the_name_do_not_end_a_run_that_was_not_seen_yet(self) -> None:
        """A watch that was interrupted reports them before the run's own workload."""
        own = workload()
        objects = RunObjects("run", own["metadata"]["uid"])
        deleting = with_metadata(own, uid="earlier", deletionTimestamp="2026-11-21T03:00:00Z")
        for change in (
            Change("MODIFIED", with_metadata(own, uid="earlier")),
            Change("ADDED", deleting),
            Change("DELETED", deleting),
            Change("ADDED", own),
        ):
            objects.see(change)
            assert now(objects).phase is Phase.PENDING

    def test_a_run_whose_workload_is_seen_exists_whatever_was_seen_before(self) -> None:
        own = workload()
        other = {**with_metadata(own, uid="other"), "kind": "Job", "apiVersion": "batch/v1"}
        objects = RunObjects("run", own["metadata"]["uid"])
        for each in (other, own, other):
            objects.see(Change("ADDED", each))
        assert (objects.absence, now(objects).phase) == ("", Phase.PENDING)

    def test_run_of_reads_the_run_from_labels(self) -> None:
        kinds = {change.object["kind"]: run_of(change.object) for change in stream("jobset_succeeds")}
        assert kinds == {"JobSet": "run", "Job": "run", "Pod": "run", "Event": ""}


class TestDeletedPods:
    """The API server's times have a resolution of one second."""

    SECOND = "2026-11-21T03:34:36Z"

    def running(self) -> tuple[RunObjects, Object, Object]:
        """A run with two running pods, and these pods."""
        objects = until("jobset_fails", Phase.RUNNING)
        first = {c.object["metadata"]["name"]: c.object for c in stream("jobset_fails") if _is_running(c.object)}
        zero, one = (dict(first[pod.name]) for pod in objects.pods)
        return objects, zero, one

    def delete(self, objects: RunObjects, pod: Object, **status: Any) -> None:
        changed = with_metadata(pod, deletionTimestamp=self.SECOND)
        objects.see(Change("MODIFIED", {**changed, "status": {**pod["status"], **status}}))

    def test_of_an_earlier_attempt_keep_the_order_of_the_requests(self) -> None:
        """JobSet raises its restart counter before it deletes the pods."""
        objects, zero, one = self.running()
        self.delete(objects, one)
        objects.see(Change("MODIFIED", {**workload("jobset_fails"), "status": {"restarts": 1}}))
        assert objects.attempt == 1
        self.delete(objects, zero)
        for pod in (zero, one):
            self.delete(objects, pod, conditions=[{"type": "Ready", "status": "False"}])
        at = {pod.index: pod.deletion_requested for pod in objects.history.earlier.of(0)}
        assert at[0] is not None and at[1] is not None and 0 < at[0] - at[1] < 0.1

    def test_that_had_ended_before_keep_their_end(self) -> None:
        objects = until("jobset_fails", Phase.FAILED)
        failed = next(pod for pod in objects.pods if pod.end is not None and pod.deletion_requested is None)
        objects.see(Change("MODIFIED", {**workload("jobset_fails"), "status": {"restarts": 1}}))
        (*_, last) = [dict(c.object) for c in stream("jobset_fails") if c.object["metadata"]["name"] == failed.name]
        self.delete(objects, last)
        (kept,) = [pod for pod in objects.history.earlier.of(0) if pod.uid == failed.uid]
        assert (kept.end, kept.deletion_requested) == (failed.end, None)
        assert kept.due is not None, "the pod's other changes are kept"

    def test_in_the_second_in_which_a_suspension_ended_belong_to_it(self) -> None:
        objects, zero, one = self.running()
        self.delete(objects, zero)
        self.delete(objects, one)
        resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": self.SECOND}
        objects.see(Change("MODIFIED", {**workload("jobset_fails"), "status": {"conditions": [resumed]}}))
        assert (objects.pods, objects.history.predecessors()) == ([], [])


class TestDeletedWorkload:
    def test_before_the_end_means_cancelled(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("DELETED", workload()))
        status = now(objects, 5.0)
        assert status.failure is not None
        assert (status.phase, status.failure.kind, status.finished) == (Phase.FAILED, FailureKind.CANCELLED, 5.0)

    def test_means_lost_if_its_deletion_was_not_observed(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("DELETED", workload(), observed=False))
        status = now(objects)
        assert status.failure is not None
        assert (status.phase, status.failure.kind) == (Phase.LOST, FailureKind.LOST)
        assert "its end was not observed" in status.failure.message

    def test_means_cancelled_if_the_follower_deleted_it(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.deleted_by_follower = True
        objects.see(Change("DELETED", workload(), observed=False))
        status = now(objects)
        assert status.failure is not None
        assert (status.phase, status.failure.kind) == (Phase.FAILED, FailureKind.CANCELLED)

    def test_means_lost_if_it_was_not_found(self) -> None:
        objects = RunObjects("run")
        assert objects.not_found() and not objects.not_found()
        assert now(objects).phase is Phase.LOST

    def test_after_the_end_keeps_the_end(self) -> None:
        objects = seen(stream("jobset_succeeds"))
        for observed in (True, False):
            objects.see(Change("DELETED", workload("jobset_succeeds", -1), observed))
            assert now(objects).phase is Phase.SUCCEEDED

    def test_ends_the_run_after_its_pods_have_ended(self) -> None:
        found = phases("jobset_is_deleted_in_the_foreground")
        assert found == ["Pending (Starting)", "Running", "Failed"]
        notes = [status.notes for status in statuses("jobset_is_deleted_in_the_foreground") if status.notes]
        assert set(notes) == {("the run is being deleted; its pods have time to end",)}

    def test_ends_the_run_if_its_pods_are_not_deleted(self) -> None:
        """The pods are orphaned on purpose, or on a lost node."""
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("MODIFIED", with_metadata(workload(), deletionTimestamp="2026-01-01T00:00:00Z")))
        assert now(objects, 1767225600.0 + 20).phase is Phase.RUNNING
        status = now(objects, 1767225600.0 + 60)
        assert (status.phase, status.finished) == (Phase.FAILED, 1767225600.0)
        assert {row.state for row in status.ranks} == {"Stopped"}


class TestVerdict:
    def status_with(self, text: str, ended: str = "") -> RunStatus:
        each = workload()
        notes = {**each["metadata"]["annotations"], "stepset.dev/verdict": text}
        status = {"conditions": [{"type": ended, "status": "True"}]} if ended else {}
        return now(seen([Change("ADDED", {**with_metadata(each, annotations=notes), "status": status})]))

    def test_that_is_stored_is_the_end_of_the_run(self) -> None:
        verdict = replace(final("jobset_fails"), notes=("stored",))
        assert self.status_with(json.dumps(verdict.to_dict()), ended="Failed") == verdict

    @pytest.mark.parametrize("ended", ["", "Completed"])
    def test_that_the_controller_does_not_confirm_is_ignored(self, ended: str) -> None:
        status = self.status_with(json.dumps(final("jobset_fails").to_dict()), ended)
        assert status.phase is (Phase.SUCCEEDED if ended else Phase.PENDING)

    def test_that_is_invalid_is_ignored(self) -> None:
        for text in ("", "{", "[]", "{}", '{"phase": "Running"}', '{"phase": 7}', '{"unknown": 1}'):
            assert self.status_with(text).phase is Phase.PENDING
        unfinished = until("jobset_fails", Phase.RUNNING)
        assert self.status_with(json.dumps(now(unfinished).to_dict())).phase is Phase.PENDING


class TestAttempts:
    def test_only_the_present_one_has_rows(self) -> None:
        objects, attempts = RunObjects("run"), set()
        for change in stream("jobset_starts_again_and_succeeds"):
            objects.see(change)
            status = now(objects)
            attempts.add(status.attempt)
            assert {row.restarts for row in status.ranks} <= {status.attempt}
            assert len(status.ranks) <= 2
        assert attempts == {0, 1}

    def test_the_previous_one_explains_the_restart(self) -> None:
        (note,) = final("jobset_starts_again_and_succeeds").notes
        assert note.startswith("restart 1: rank 1 (pod run-node-0-1-") and note.endswith("code 1: ValueError: once")

    def test_the_previous_one_explains_a_failure_without_later_pods(self) -> None:
        """The pods of the last attempt were deleted before they were observed."""
        changes = list(stream("jobset_uses_up_its_restarts"))
        objects = seen(c for c in changes if not _of_attempt(c.object, "1"))
        status = now(objects)
        assert (status.phase, status.attempt) == (Phase.FAILED, 1)
        assert status.failure is not None and status.failure.message.endswith("ValueError: attempt 0")

    def test_of_a_long_run_are_kept_in_bounded_memory(self) -> None:
        (pod, *_), objects = [c.object for c in stream("jobset_fails") if _has_failed(c.object)], RunObjects("run")
        (job, *_) = [dict(c.object) for c in stream("jobset_fails") if c.object["kind"] == "Job"]
        row = {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 40}}}
        for attempt in range(200):
            of_40_pods = {"spec": {"replicatedJobs": [row]}, "status": {"restarts": attempt}}
            objects.see(Change("MODIFIED", {**workload("jobset_fails"), **of_40_pods}))
            marks = {**job["metadata"]["labels"], "jobset.sigs.k8s.io/restart-attempt": str(attempt)}
            objects.see(Change("MODIFIED", with_metadata(job, labels=marks)))
            for index in range(40):
                labels = {**pod["metadata"]["labels"], "jobset.sigs.k8s.io/restart-attempt": str(attempt)}
                labels["batch.kubernetes.io/job-completion-index"] = str(index)
                uid = f"{attempt}-{index}"
                changed = with_metadata(dict(pod), labels=labels, annotations={}, uid=uid, name=uid)
                objects.see(Change("ADDED", changed))
        assert len(objects.pods) == 40
        kept = [objects.history.earlier.of(attempt) for attempt in range(200)]
        assert sum(map(len, kept)) <= 9 * 16
        assert len(objects.history.known) <= 40 + 9 * 16
        assert now(objects).attempt == 199
        assert 0 < len(now(objects).notes) <= 9

    def test_all_ended_is_true_once_all_pods_have_ended(self) -> None:
        assert not all_ended(until("jobset_fails", Phase.RUNNING))
        assert all_ended(seen(stream("jobset_fails")))

    @pytest.mark.parametrize("name", ["jobset_succeeds", "trainjob_succeeds", "job_succeeds", "mpi_succeeds"])
    def test_a_success_is_proven_once_its_pods_have_succeeded(self, name: str) -> None:
        changes = list(stream(name))
        assert success_confirmed(seen(changes))
        late = seen(change for change in changes if not _has_ended(change.object))
        assert late.workload is not None and late.workload.ended
        assert not success_confirmed(late)
        assert success_confirmed(until(name, Phase.RUNNING)), "no success is reported yet"


def _has_ended(each: Any) -> bool:
    statuses = each["status"].get("containerStatuses", []) if each["kind"] == "Pod" else []
    return any("terminated" in status["state"] for status in statuses)


def _of_attempt(each: Any, attempt: str) -> bool:
    labels = each["metadata"].get("labels", {})
    return each["kind"] in ("Pod", "Job") and labels.get("jobset.sigs.k8s.io/restart-attempt") == attempt


def _is_running(each: Any) -> bool:
    running = each["kind"] == "Pod" and each["status"]["phase"] == "Running" and "terminated" not in json.dumps(each)
    return running and "deletionTimestamp" not in each["metadata"]


def _has_failed(each: Any) -> bool:
    return each["kind"] == "Pod" and each["status"]["phase"] == "Failed" and "failed" in json.dumps(each)
