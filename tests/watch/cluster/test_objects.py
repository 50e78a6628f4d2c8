"""Which objects are a run's, and what it means when its workload is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stepset.watch.cluster.change import Change
from stepset.watch.cluster.objects import RunObjects, run_of
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import all_ended, proven, status_of
from stepset.watch.state import FailureKind, Phase, RunStatus
from tests.watch.cluster.streams import Object, final, phases, seen, statuses, stream


def workload(name: str = "jobset_succeeds", index: int = 0) -> Object:
    return dict([c for c in stream(name) if c.object["kind"] == "JobSet"][index].object)


def with_metadata(each: Object, **fields: Any) -> Object:
    return {**each, "metadata": {**each["metadata"], **fields}}


def now(objects: RunObjects, at: float = 0.0) -> RunStatus:
    return status_of(objects, Reports(), at)


def until(name: str, phase: Phase) -> RunObjects:
    """A run as it was when it came to a phase."""
    objects = RunObjects("run")
    for change in stream(name):
        objects.see(change)
        if now(objects).phase is phase:
            return objects
    raise AssertionError(phase)


class TestWhoseObjects:
    def test_a_run_without_pods_has_a_state(self) -> None:
        status = now(seen([Change("ADDED", workload())]))
        assert (status.phase, status.reason, status.ranks) == (Phase.PENDING, "Starting", ())
        assert (status.name, status.job, status.backend, status.world_size) == ("run", "run", "kubernetes", 4)

    def test_a_run_of_which_nothing_came_yet_is_pending(self) -> None:
        assert (now(RunObjects("run")).phase, now(RunObjects("run")).name) == (Phase.PENDING, "run")

    def test_pods_may_come_before_their_workload(self) -> None:
        pods = [change for change in stream("jobset_succeeds") if change.object["kind"] == "Pod"]
        objects = seen(pods)
        assert now(objects).phase is Phase.PENDING
        objects.see(Change("ADDED", workload()))
        assert len(now(objects).ranks) == 4

    def test_pods_of_another_run_are_not_its_own(self) -> None:
        objects = seen(stream("jobset_succeeds"))
        stray = [c.object for c in stream("jobset_fails") if c.object["kind"] == "Pod"]
        assert not objects.see(Change("ADDED", with_metadata(dict(stray[0]), labels={"stepset.dev/run": "other"})))
        # and those of an earlier run that had the same name count for nothing
        objects.see(Change("ADDED", stray[0]))
        assert now(objects) == final("jobset_succeeds")

    def test_a_new_workload_of_that_name_is_another_run(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("ADDED", with_metadata(workload(), uid="another")))
        status = now(objects)
        assert status.phase is Phase.LOST
        assert status.failure is not None and status.failure.kind is FailureKind.LOST

    def test_a_workload_is_told_by_its_uid_where_that_is_known(self) -> None:
        objects = RunObjects("run", "the one")
        assert objects.see(Change("ADDED", workload())) and now(objects).phase is Phase.LOST

    def test_whoever_watches_many_runs_tells_them_by_their_labels(self) -> None:
        kinds = {change.object["kind"]: run_of(change.object) for change in stream("jobset_succeeds")}
        assert kinds == {"JobSet": "run", "Job": "run", "Pod": "run", "Event": ""}


class TestAWorkloadThatIsGone:
    def test_before_its_end_was_cancelled(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("DELETED", workload()))
        status = now(objects, 5.0)
        assert status.failure is not None
        assert (status.phase, status.failure.kind, status.finished) == (Phase.FAILED, FailureKind.CANCELLED, 5.0)

    def test_is_lost_where_nobody_saw_it_go(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("DELETED", workload(), witnessed=False))
        status = now(objects)
        assert status.failure is not None
        assert (status.phase, status.failure.kind) == (Phase.LOST, FailureKind.LOST)
        assert "its end was not observed" in status.failure.message

    def test_was_cancelled_where_whoever_asks_has_had_it_deleted(self) -> None:
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.unwanted = True
        objects.see(Change("DELETED", workload(), witnessed=False))
        status = now(objects)
        assert status.failure is not None
        assert (status.phase, status.failure.kind) == (Phase.FAILED, FailureKind.CANCELLED)

    def test_is_lost_where_the_server_knows_none(self) -> None:
        objects = RunObjects("run")
        assert objects.not_found() and not objects.not_found()
        assert now(objects).phase is Phase.LOST

    def test_after_its_end_has_ended_as_it_did(self) -> None:
        objects = seen(stream("jobset_succeeds"))
        for witnessed in (True, False):
            objects.see(Change("DELETED", workload("jobset_succeeds", -1), witnessed))
            assert now(objects).phase is Phase.SUCCEEDED

    def test_is_over_when_its_pods_have_had_their_time_to_end(self) -> None:
        found = phases("jobset_is_deleted_in_the_foreground")
        assert found == ["Pending (Starting)", "Running", "Failed"]
        notes = [status.notes for status in statuses("jobset_is_deleted_in_the_foreground") if status.notes]
        assert set(notes) == {("the run is being deleted; its pods have time to end",)}

    def test_is_over_where_nobody_tells_its_pods_to_go(self) -> None:
        """Orphaned on purpose, or on a node that is lost."""
        objects = until("jobset_succeeds", Phase.RUNNING)
        objects.see(Change("MODIFIED", with_metadata(workload(), deletionTimestamp="2026-01-01T00:00:00Z")))
        assert now(objects, 1767225600.0 + 20).phase is Phase.RUNNING
        status = now(objects, 1767225600.0 + 60)
        assert (status.phase, status.finished) == (Phase.FAILED, 1767225600.0)
        assert {row.state for row in status.ranks} == {"Stopped"}


class TestAVerdict:
    def told(self, text: str) -> RunStatus:
        each = workload()
        notes = {**each["metadata"]["annotations"], "stepset.dev/verdict": text}
        return now(seen([Change("ADDED", with_metadata(each, annotations=notes))]))

    def test_that_was_written_down_is_how_the_run_ended(self) -> None:
        verdict = replace(final("jobset_fails"), notes=("told",))
        assert self.told(json.dumps(verdict.to_dict())) == verdict

    def test_that_is_none_says_nothing(self) -> None:
        for text in ("", "{", "[]", "{}", '{"phase": "Running"}', '{"phase": 7}', '{"unknown": 1}'):
            assert self.told(text).phase is Phase.PENDING
        unfinished = until("jobset_fails", Phase.RUNNING)
        assert self.told(json.dumps(now(unfinished).to_dict())).phase is Phase.PENDING


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

    def test_the_one_before_explains_the_restart(self) -> None:
        (note,) = final("jobset_starts_again_and_succeeds").notes
        assert note.startswith("restart 1: rank 1 (pod run-node-0-1-") and note.endswith("code 1: ValueError: once")

    def test_the_one_before_explains_a_failure_that_nothing_later_does(self) -> None:
        """The last pods are gone before anybody saw them."""
        changes = list(stream("jobset_uses_up_its_restarts"))
        objects = seen(c for c in changes if not _of_attempt(c.object, "1"))
        status = now(objects)
        assert (status.phase, status.attempt) == (Phase.FAILED, 1)
        assert status.failure is not None and status.failure.message.endswith("ValueError: attempt 0")

    def test_of_a_long_run_little_is_kept(self) -> None:
        (pod, *_), objects = [c.object for c in stream("jobset_fails") if _has_failed(c.object)], RunObjects("run")
        objects.see(Change("ADDED", workload("jobset_fails")))
        for attempt in range(200):
            for index in range(40):
                labels = {**pod["metadata"]["labels"], "jobset.sigs.k8s.io/restart-attempt": str(attempt)}
                labels["batch.kubernetes.io/job-completion-index"] = str(index)
                uid = f"{attempt}-{index}"
                changed = with_metadata(dict(pod), labels=labels, annotations={}, uid=uid, name=uid)
                objects.see(Change("ADDED", changed))
        assert len(objects.pods) == 40
        kept = [objects.earlier(attempt) for attempt in range(200)]
        assert sum(map(len, kept)) <= 9 * 16
        assert len(objects.known) <= 40 + 9 * 16
        assert now(objects).attempt == 199
        assert 0 < len(now(objects).notes) <= 9

    def test_of_a_run_nothing_more_is_to_come_when_all_pods_have_ended(self) -> None:
        assert not all_ended(until("jobset_fails", Phase.RUNNING))
        assert all_ended(seen(stream("jobset_fails")))

    @pytest.mark.parametrize("name", ["jobset_succeeds", "trainjob_succeeds", "job_succeeds", "mpi_succeeds"])
    def test_a_success_is_proven_when_its_pods_are_seen_to_have_succeeded(self, name: str) -> None:
        changes = list(stream(name))
        assert proven(seen(changes))
        late = seen(change for change in changes if not _has_ended(change.object))
        assert late.workload is not None and late.workload.ended
        assert not proven(late)
        assert proven(until(name, Phase.RUNNING)), "nobody has told a success"


def _has_ended(each: Any) -> bool:
    statuses = each["status"].get("containerStatuses", []) if each["kind"] == "Pod" else []
    return any("terminated" in status["state"] for status in statuses)


def _of_attempt(each: Any, attempt: str) -> bool:
    labels = each["metadata"].get("labels", {})
    return each["kind"] in ("Pod", "Job") and labels.get("jobset.sigs.k8s.io/restart-attempt") == attempt


def _has_failed(each: Any) -> bool:
    return each["kind"] == "Pod" and each["status"]["phase"] == "Failed" and "failed" in json.dumps(each)
