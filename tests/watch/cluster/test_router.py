"""The router assigns changes to runs, for any order of the watches, and forgets deleted runs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.run_status import Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.router import Router
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.namespaces import by_kind, renamed
from tests.watch.cluster.streams import NAMES, Object

# The second has a name like a pod of the first.
RUNS = ("train", "train-node-0", "other")


def status(objects: RunObjects | None) -> RunStatus:
    assert objects is not None
    return status_of(objects, Reports(), 0.0)


def essence(objects: RunObjects | None) -> tuple[object, ...]:
    """The parts of a state that do not depend on the order of the streams."""
    found = status(objects)
    failure, trouble = found.failure, found.trouble
    rows = tuple((row.source, row.pod, row.state) for row in found.ranks)
    why = None if failure is None else (failure.kind, failure.message, failure.pod, failure.rank, failure.aftermath)
    now = None if trouble is None else (trouble.kind, trouble.message)
    return found.phase, found.reason, found.attempt, found.result, rows, why, now


def alone(changes: Sequence[Change], run: str) -> RunObjects:
    objects = RunObjects(run)
    for change in changes:
        objects.see(change)
    return objects


def uid_of(changes: Sequence[Change], run: str) -> str:
    """The uid of a run's workload."""
    for change in changes:
        meta = change.object["metadata"]
        controlled = any(row.get("controller") for row in meta.get("ownerReferences", ()))
        if meta["name"] == run and change.object["kind"] not in ("Event", "Pod") and not controlled:
            return str(meta["uid"])
    raise AssertionError(f"no workload of {run}")


def mixed(streams: list[list[Change]], rng: random.Random) -> list[Change]:
    """Merges several streams at random; keeps the order of each."""
    left, found = [list(each) for each in streams if each], []
    while left:
        chosen = rng.choice(left)
        found.append(chosen.pop(0))
        left = [each for each in left if each]
    return found


def deletions(changes: Sequence[Change]) -> list[Change]:
    """Deletions of all objects of a stream that still exist."""
    last = {str(change.object["metadata"]["uid"]): change for change in changes}
    return [Change("DELETED", change.object) for change in last.values() if change.verb != "DELETED"]


@settings(max_examples=60, deadline=None)
@given(
    scenarios=st.lists(st.sampled_from(NAMES), min_size=len(RUNS), max_size=len(RUNS)),
    seed=st.integers(0, 2**32),
)
def test_other_runs_do_not_affect_a_run(scenarios: list[str], seed: int) -> None:
    of = {run: renamed(scenario, run) for run, scenario in zip(RUNS, scenarios, strict=True)}
    router = Router()
    for run, changes in of.items():
        router.keep(run, uid_of(changes, run))
    whose = {id(change): run for run, changes in of.items() for change in changes}
    order = mixed([each for changes in of.values() for each in by_kind(changes)], random.Random(seed))
    changed = {run for change in order for run in router.see([change]).runs}
    assert changed == set(RUNS)
    for run in RUNS:
        its = [change for change in order if whose[id(change)] == run]
        assert essence(router.objects(run)) == essence(alone(its, run)), (run, scenarios)


@pytest.mark.parametrize("name", NAMES)
def test_a_deleted_run_is_forgotten_unless_it_is_kept(name: str) -> None:
    changes = renamed(name, "train")
    router, keeping = Router(), Router()
    keeping.keep("train", uid_of(changes, "train"))
    for each in (router, keeping):
        each.see([*changes, *deletions(changes)])
    assert router.runs == []
    assert status(keeping.objects("train")).phase.final, "its end is still known"
    keeping.forget("train")
    assert keeping.runs == []


class TestKeep:
    def test_returns_whether_the_workload_was_seen(self) -> None:
        changes = renamed("jobset_succeeds", "train")
        router = Router()
        uid = uid_of(changes, "train")
        assert not router.keep("train", uid)
        router.see(changes)
        assert router.keep("train", uid)

    def test_allows_an_unknown_run_to_be_marked_as_not_found(self) -> None:
        router = Router()
        router.keep("train", "uid")
        objects = router.objects("train")
        assert objects is not None
        objects.not_found()
        assert status(objects).phase is Phase.LOST

    def test_retains_the_run_if_another_of_the_same_name_appears(self) -> None:
        first = renamed("jobset_succeeds", "train")
        later = [_with_uid(change, "a-later-uid") for change in first if change.object["kind"] == "JobSet"]
        router = Router()
        router.keep("train", uid_of(first, "train"))
        router.see([*first[:10], *later])
        assert status(router.objects("train")).phase is Phase.LOST

    def test_retains_two_runs_of_one_name_with_their_own_objects(self) -> None:
        streams = [renamed(name, "train") for name in ("jobset_fails", "jobset_succeeds")]
        router = Router()
        for changes in streams:
            router.keep("train", uid_of(changes, "train"))
        router.see(mixed([list(each) for each in streams], random.Random(0)))
        for changes in streams:
            found = router.objects("train", uid_of(changes, "train"))
            assert essence(found) == essence(alone(changes, "train"))

    def test_of_a_deleted_run_does_not_affect_a_newer_run_of_its_name(self) -> None:
        changes = renamed("jobset_succeeds", "train")
        router = Router()
        router.see(changes)
        assert not router.keep("train", "the uid of a deleted workload")
        assert router.keep("train", uid_of(changes, "train"))
        assert essence(router.objects("train", uid_of(changes, "train"))) == essence(alone(changes, "train"))

    def test_is_required_to_retain_the_older_of_two_runs_of_the_same_name(self) -> None:
        first = renamed("jobset_fails", "train")
        later = [_with_uid(change, "a-later-uid") for change in first if change.object["kind"] == "JobSet"][:1]
        router = Router()
        router.see([*first, *later])
        objects = router.objects("train")
        assert objects is not None and objects.uid == "a-later-uid"
        assert status(objects).phase is Phase.PENDING


class TestUnknownObjects:
    def test_the_jobs_of_a_foreign_jobset_are_not_a_run(self) -> None:
        jobs = [change for change in renamed("jobset_fails", "theirs") if change.object["kind"] == "Job"]
        router = Router()
        assert router.see(jobs).runs == set()
        assert router.runs == []

    def test_jobs_that_arrive_before_their_run_are_assigned_to_it(self) -> None:
        changes = renamed("pods_refused_by_policy", "train")
        jobs = [change for change in changes if change.object["kind"] in ("Job", "Event")]
        rest = [change for change in changes if change.object["kind"] not in ("Job", "Event")]
        router = Router()
        router.see([*jobs, *rest])
        assert essence(router.objects("train")) == essence(alone(changes, "train"))

    def test_events_about_other_objects_do_not_displace_those_of_a_run(self) -> None:
        changes = renamed("image_misspelt", "train")
        events = [change for change in changes if change.object["kind"] == "Event"]
        rest = [change for change in changes if change.object["kind"] != "Event"]
        router = Router()
        router.see([*events, *(_event(number) for number in range(2000)), *rest])
        assert essence(router.objects("train")) == essence(alone(changes, "train"))

    def test_events_that_no_longer_exist_are_forgotten(self) -> None:
        changes = renamed("image_misspelt", "train")
        events = [change for change in changes if change.object["kind"] == "Event"]
        rest = [change for change in changes if change.object["kind"] != "Event"]
        router = Router()
        router.see([*events, *(Change("DELETED", change.object) for change in events), *rest])
        found = router.objects("train")
        assert found is not None and not found.events.latest

    def test_an_event_about_an_object_with_a_runs_name_as_prefix_belongs_to_the_run(self) -> None:
        changes = renamed("jobset_succeeds", "train")
        about = {"kind": "PersistentVolumeClaim", "name": "train-scratch-0", "uid": "unseen"}
        event = _event(1, about)
        router = Router()
        router.see(changes[:3])
        assert router.see([event]).runs == {"train"}

    def test_events_about_pods_that_no_longer_exist_are_found_by_the_name_of_their_run(self) -> None:
        changes = renamed("jobset_fails", "train")
        gone = {"kind": "Pod", "name": "train-node-0-1-abcde", "uid": "of an earlier attempt"}
        other = {"kind": "Pod", "name": "trainer-0", "uid": "of another run"}
        router = Router()
        router.see([*changes, _event(1, gone), _event(2, other)])
        objects = router.objects("train")
        assert objects is not None
        assert [event.name for event in objects.events_of_former()] == []
        later = [_event(number, about, at="2030-01-01T00:00:00Z") for number, about in enumerate((gone, other))]
        router.see(later)
        assert [event.name for event in objects.events_of_former()] == ["train-node-0-1-abcde"]

    def test_objects_without_a_runs_name_are_ignored(self) -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "uid": "u"}}
        router = Router()
        assert router.see([Change("ADDED", pod), Change("DELETED", pod)]) == (set(), [])
        assert router.runs == []


class TestPodsSeen:
    """The changes of the pods of runs."""

    def reported(self, changes: Sequence[Change]) -> list[tuple[str, Change]]:
        return [(run.name, change) for run, change in Router().see(changes).pods]

    def test_include_the_last_state_of_a_pod_when_the_owner_of_the_pod_becomes_known(self) -> None:
        pods, others = _pods("jobset_succeeds")
        last = {change.object["metadata"]["uid"]: change for change in pods}
        assert self.reported(pods) == []
        found = self.reported([*pods, *others])
        assert {run for run, _ in found} == {"train"}
        assert {change.object["metadata"]["uid"]: change for _, change in found} == last
        assert len(found) == len(last)

    def test_include_the_deletion_of_a_pod_that_its_controller_has_released(self) -> None:
        pods, others = _pods("jobset_succeeds")
        released = {**pods[0].object["metadata"], "ownerReferences": []}
        left = [Change(verb, {**pods[0].object, "metadata": released}) for verb in ("MODIFIED", "DELETED")]
        found = self.reported([*others, pods[0], *left])
        assert [change.verb for _, change in found] == ["ADDED", "MODIFIED", "DELETED"]

    def test_do_not_include_a_pod_that_claims_to_be_part_of_a_run(self) -> None:
        pods, others = _pods("jobset_succeeds")
        owners = [{"kind": "Job", "name": "train-node-0", "uid": "unknown", "controller": True}]
        forged = {**pods[0].object["metadata"], "uid": "forged", "ownerReferences": owners}
        assert self.reported([*others, Change("ADDED", {**pods[0].object, "metadata": forged})]) == []


def test_a_pod_that_claims_the_place_of_another_pod_stays_foreign_after_its_controller_has_released_it() -> None:
    """A Job releases a pod that has the Job as its owner, but not the labels that the Job selects."""
    pods, others = _pods("jobset_succeeds")
    router = Router()
    router.see([*others, pods[0]])
    objects = router.objects("train")
    assert objects is not None
    forged = {**pods[0].object["metadata"], "uid": "forged", "creationTimestamp": "2031-01-01T00:00:00Z"}
    released = {**pods[0].object, "metadata": {**forged, "name": "forged", "ownerReferences": []}}
    claims = {**pods[0].object, "metadata": {**forged, "name": "forged"}}
    for change in (Change("ADDED", claims), Change("MODIFIED", released), Change("DELETED", released)):
        router.see([change])
        assert objects.owns(pods[0].object["metadata"]["uid"])
        assert not objects.owns("forged")


def _pods(scenario: str) -> tuple[list[Change], list[Change]]:
    """The changes of the pods of a run, and its other changes."""
    changes = renamed(scenario, "train")
    pods = [change for change in changes if change.object["kind"] == "Pod"]
    return pods, [change for change in changes if change.object["kind"] != "Pod"]


def _with_uid(change: Change, uid: str) -> Change:
    each = {**change.object, "metadata": {**change.object["metadata"], "uid": uid}}
    return Change(change.verb, each)


def _event(number: int, about: Object | None = None, at: str = "2026-01-01T00:00:00Z") -> Change:
    involved = about or {"kind": "Pod", "name": f"web-{number}", "uid": f"web-{number}"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{number}", "uid": f"event-{number}"},
        "involvedObject": involved,
        "type": "Warning",
        "reason": "FailedMount",
        "message": "no such volume",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    return Change("ADDED", event)
