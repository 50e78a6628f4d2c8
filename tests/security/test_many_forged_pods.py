"""A user who creates many pods with the marks of a run neither hides the run's pods nor slows its followers down."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.run.owners import DeferredChanges
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import Object, seen, stream

MANY = 12_000
INDEX = "batch.kubernetes.io/job-completion-index"


def first(kind: str) -> Object:
    """The first state of a kind of object of a run."""
    return dict(next(change.object for change in stream("jobset_succeeds") if change.object["kind"] == kind))


def last_pod() -> Object:
    """A pod of a run that has succeeded."""
    return dict([change.object for change in stream("jobset_succeeds") if change.object["kind"] == "Pod"][-1])


def with_metadata(pod: Object, uid: str, **fields: Any) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "uid": uid, "name": uid, **fields}}


def owned_by(uid: str) -> list[Object]:
    return [{"kind": "Job", "name": "run-node-0", "uid": uid, "controller": True}]


def test_pods_of_unknown_owners_do_not_displace_a_pod_that_precedes_its_job() -> None:
    changes = stream("jobset_succeeds")
    jobs = [change for change in changes if change.object["kind"] == "Job"]
    others = [change for change in changes if change.object["kind"] != "Job"]
    forged = [
        Change("ADDED", with_metadata(last_pod(), f"forged-{number}", ownerReferences=owned_by(f"unknown-{number}")))
        for number in range(MANY)
    ]
    found = status_of(seen([*others, *forged, *jobs]), Reports(), 0.0)
    assert found == status_of(seen([*others, *jobs]), Reports(), 0.0)
    assert [row.pod for row in found.ranks] == [row.pod for row in status_of(seen(changes), Reports(), 0.0).ranks]
    assert found.ranks


def test_pods_that_no_longer_exist_are_kept_in_bounded_memory() -> None:
    deferred = DeferredChanges()
    for number in range(MANY):
        for verb in ("ADDED", "DELETED"):
            deferred.keep(f"unknown-{number}", f"forged-{number}", Change(verb, {}))
    assert len(deferred) == 10_000
    assert deferred.take("unknown-0") == []
    assert [change.verb for change in deferred.take(f"unknown-{MANY - 1}")] == ["ADDED", "DELETED"]
    assert len(deferred) == 9_999


def test_a_pod_that_another_controller_has_adopted_is_forgotten_under_the_first() -> None:
    deferred = DeferredChanges()
    deferred.keep("first", "pod", Change("ADDED", {}))
    deferred.keep("second", "pod", Change("DELETED", {}))
    assert deferred.take("first") == deferred.take("second") == []
    assert len(deferred) == 0


def calls(action: Callable[[], object]) -> int:
    """The number of Python functions that an action calls."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def pods(count: int, name: str, **status: Any) -> list[Object]:
    """Pods of the Job, each with another index."""
    pod, job = first("Pod"), first("Job")["metadata"]["uid"]
    labels = pod["metadata"]["labels"]
    return [
        {
            **with_metadata(
                pod,
                f"{name}-{number}",
                labels={**labels, INDEX: str(number)},
                creationTimestamp="2026-11-21T04:00:00Z" if name == "forged" else "2026-11-21T03:00:00Z",
                annotations={},
                ownerReferences=owned_by(job),
            ),
            "status": status,
        }
        for number in range(count)
    ]


def all_pods_replaced(count: int) -> list[Change]:
    """Every pod of a run fails and is deleted, then every one is replaced."""
    failed = pods(count, "failed", phase="Failed")
    news = pods(count, "new", phase="Running")
    return [
        *(Change("ADDED", each) for each in (first("JobSet"), first("Job"), *failed)),
        *(Change("DELETED", each) for each in failed),
        *(Change("ADDED", each) for each in news),
    ]


def one_index_claimed(count: int) -> list[Change]:
    """A pod succeeds and is deleted; then many pods claim its index."""
    (own,) = pods(1, "own", phase="Running")
    ended = {**last_pod(), "metadata": own["metadata"]}
    forged = [
        {**each, "metadata": {**each["metadata"], "labels": own["metadata"]["labels"]}}
        for each in pods(count, "forged")
    ]
    return [
        *(Change("ADDED", each) for each in (first("JobSet"), first("Job"), own, ended)),
        Change("DELETED", ended),
        *(Change("ADDED", each) for each in forged),
    ]


def claimed_and_deleted(count: int) -> list[Change]:
    """Many pods claim the index of a running pod, one after another; each is deleted."""
    (own,) = pods(1, "own", phase="Running")
    forged = [
        {**each, "metadata": {**each["metadata"], "labels": own["metadata"]["labels"]}}
        for each in pods(count, "forged")
    ]
    created = [Change("ADDED", each) for each in (first("JobSet"), first("Job"), own)]
    return [*created, *(Change(verb, each) for each in forged for verb in ("ADDED", "DELETED"))]


@pytest.mark.parametrize("changes", [all_pods_replaced, one_index_claimed, claimed_and_deleted])
def test_the_cost_of_replaced_pods_grows_linearly_with_their_number(changes: Callable[[int], list[Change]]) -> None:
    few, many = changes(200), changes(800)

    def see(those: list[Change]) -> None:
        objects = RunObjects("run")
        for change in those:
            objects.see(change)
        assert objects.pods

    assert calls(lambda: see(many)) < 5 * calls(lambda: see(few))


def test_pods_that_claimed_an_index_and_were_deleted_are_forgotten() -> None:
    objects = RunObjects("run")
    for change in claimed_and_deleted(500):
        objects.see(change)
        assert [pod.uid for pod in objects.pods] in ([], ["own-0"])
    assert objects.history.known == {"own-0"}
