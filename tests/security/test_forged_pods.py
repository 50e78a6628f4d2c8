"""A user who can create pods in the namespace cannot end, forge or restart the run of another user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stepset.run_status import Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import Object, stream

UNOWNED = ("no owner", "unknown job", "not controlled", "the workload itself")
"""Owners of forged pods that are not the Job's."""


def status(objects: RunObjects) -> RunStatus:
    return status_of(objects, Reports(), 2e9)


def running(name: str) -> tuple[RunObjects, list[Change]]:
    """A run whose pods all run, and its changes so far."""
    objects, changes = RunObjects("run"), list[Change]()
    for change in stream(name):
        objects.see(change)
        changes.append(change)
        found = status(objects)
        if found.phase is Phase.RUNNING and all(row.state == "Running" for row in found.ranks):
            return objects, changes
    raise AssertionError(name)


def succeeded(pod: Object, uid: str, **labels: str) -> Object:
    """A pod that copies the labels of another, was created later, and has ended with a result."""
    ended = {"exitCode": 0, "message": json.dumps({"forged": True}), "finishedAt": "2026-11-21T04:00:00Z"}
    containers = [{"name": row["name"], "state": {"terminated": ended}} for row in pod["status"]["containerStatuses"]]
    meta = {
        **pod["metadata"],
        "uid": uid,
        "name": f"forged-{uid}",
        "creationTimestamp": "2026-11-21T03:59:00Z",
        "labels": {**pod["metadata"]["labels"], **labels},
    }
    return {**pod, "metadata": meta, "status": {"phase": "Succeeded", "containerStatuses": containers}}


def owners(how: str, pod: Object, objects: RunObjects) -> list[dict[str, Any]]:
    real = pod["metadata"]["ownerReferences"]
    return {
        "no owner": [],
        "unknown job": [{**real[0], "uid": "unknown"}],
        "not controlled": [{**real[0], "controller": False}],
        "the workload itself": [{**real[0], "kind": "JobSet", "uid": objects.uid, "name": "run"}],
        "the job": real,
    }[how]


def forged(name: str, how: str) -> Iterator[tuple[RunObjects, str]]:
    """A running run, before and after each of its pods was forged."""
    objects, changes = running(name)
    pods = {change.object["metadata"]["uid"]: change.object for change in changes if change.object["kind"] == "Pod"}
    for number, pod in enumerate(pods.values()):
        each = succeeded(dict(pod), f"uid-{number}", **{"jobset.sigs.k8s.io/restart-attempt": "7"})
        each["metadata"]["ownerReferences"] = owners(how, dict(pod), objects)
        objects.see(Change("ADDED", each))
        yield objects, f"uid-{number}"


@pytest.mark.parametrize("how", [*UNOWNED, "the job"])
@pytest.mark.parametrize("name", ["jobset_succeeds", "trainjob_succeeds"])
def test_a_forged_pod_changes_neither_state_nor_ranks_nor_attempt_and_its_log_is_not_read(name: str, how: str) -> None:
    before = status(running(name)[0])
    for objects, uid in forged(name, how):
        assert status(objects) == before
        assert not objects.owns(uid)
        assert uid not in [pod.uid for pod in (*objects.history.every_pod(), *objects.history.terminating())]


@pytest.mark.parametrize("how", ["no owner", "unknown job", "not controlled"])
@pytest.mark.parametrize("name", ["job_succeeds", "statefulset_succeeds"])
def test_a_forged_pod_of_a_workload_without_inner_jobs_changes_nothing(name: str, how: str) -> None:
    before = status(running(name)[0])
    for objects, uid in forged(name, how):
        assert status(objects) == before
        assert not objects.owns(uid)


@pytest.mark.parametrize("name", ["job_succeeds", "statefulset_succeeds"])
def test_pods_that_claim_the_workload_do_not_end_it_while_its_controller_disagrees(name: str) -> None:
    before = status(running(name)[0])
    for objects, _ in forged(name, "the job"):
        assert status(objects) == before


OUTSIDE = {
    "jobset_succeeds": ("forged", 7),
    "trainjob_succeeds": ("forged", 7),
    "job_succeeds": ("forged", 7),
    "statefulset_succeeds": ("run-7", 7),
}
"""The name and the index of a pod that the controller of a run with two pods does not create."""
ORDINALS = ("run-99999999999", "run-00", "run-1x", "run-٧")
"""Names of pods that the controller of a StatefulSet may count, but does not create."""


def outside(pod: Object, uid: str, name: str, index: int, status: Object | None = None) -> Object:
    """A pod that names the real controller. Its name and its index are chosen by its creator."""
    each = succeeded(pod, uid)
    places = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")
    marks = {key: str(index) for key in places if key in pod["metadata"]["labels"]}
    labels, annotations = {**pod["metadata"]["labels"], **marks}, dict.fromkeys(places[:1], str(index))
    each["metadata"] = {**each["metadata"], "name": name, "labels": labels, "annotations": annotations}
    return {**each, "status": status or each["status"]}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_pod_outside_the_planned_places_changes_nothing(name: str) -> None:
    objects, changes = running(name)
    before = status(objects)
    pod = next(change.object for change in reversed(changes) if change.object["kind"] == "Pod")
    assert not objects.see(Change("ADDED", outside(dict(pod), "uid", *OUTSIDE[name])))
    assert (status(objects), objects.owns("uid")) == (before, False)


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("name", ORDINALS)
def test_a_counted_pod_with_an_ordinal_of_another_form_changes_nothing(name: str, code: int) -> None:
    """The controller never deletes a pod with an ordinal above 32 bits, and status.replicas counts it."""
    objects, changes = running("statefulset_succeeds")
    pod, stateful_set = (
        next(change.object for change in reversed(changes) if change.object["kind"] == kind)
        for kind in ("Pod", "StatefulSet")
    )
    objects.see(Change("MODIFIED", {**stateful_set, "status": {**stateful_set["status"], "replicas": 4}}))
    before = status(objects)
    ended = {"exitCode": code, "message": json.dumps({"forged": True}), "finishedAt": "2026-11-21T04:00:05Z"}
    row = {"ready": True, "restartCount": 1, "lastState": {"terminated": ended}, "state": {"running": {}}}
    rows = [{**each, **row} for each in pod["status"]["containerStatuses"]]
    for index in (0, 1, 7):
        each = outside(dict(pod), f"uid-{index}", name, index, {**pod["status"], "containerStatuses": rows})
        objects.see(Change("ADDED", each))
        assert (status(objects), objects.owns(f"uid-{index}")) == (before, False)


def test_a_statefulset_that_was_scaled_to_zero_keeps_its_places() -> None:
    objects, changes = running("statefulset_succeeds")
    stateful_set = next(c.object for c in reversed(changes) if c.object["kind"] == "StatefulSet")
    pods = [pod.name for pod in objects.pods]
    objects.see(Change("MODIFIED", {**stateful_set, "spec": {**stateful_set["spec"], "replicas": 0}}))
    for change in changes:
        if change.object["kind"] == "Pod":
            objects.see(Change("MODIFIED", change.object))
    assert [pod.name for pod in objects.pods] == pods == ["run-0", "run-1"]


@pytest.mark.parametrize("name", ["jobset_succeeds", "trainjob_succeeds"])
def test_deleted_pods_that_claimed_the_place_of_another_are_no_restarts(name: str) -> None:
    """The Job's controller deletes them."""
    objects, changes = running(name)
    before = status(objects)
    pod = next(change.object for change in reversed(changes) if change.object["kind"] == "Pod")
    for number in range(3):
        other = succeeded(dict(pod), f"uid-{number}")
        other["status"] = pod["status"]  # it runs
        for verb in ("ADDED", "DELETED"):
            objects.see(Change(verb, other))
    assert status(objects) == before


@pytest.mark.parametrize("read", [True, False])
def test_a_pod_that_claimed_the_place_of_a_running_pod_is_ignored_although_that_pod_fails_later(read: bool) -> None:
    """Whether and when the state is computed does not matter."""
    objects, changes = running("jobset_succeeds")
    pod = dict(next(change.object for change in reversed(changes) if change.object["kind"] == "Pod"))
    before = [each.uid for each in objects.pods]
    objects.see(Change("ADDED", succeeded(pod, "forged")))
    if read:
        status(objects)
    objects.see(Change("MODIFIED", {**pod, "status": {"phase": "Failed"}}))
    assert not objects.owns("forged")
    assert [each.uid for each in objects.pods] == before


def test_the_result_of_a_run_is_not_that_of_a_pod_which_claims_the_place_of_another() -> None:
    objects, changes = running("jobset_succeeds")
    pods = {change.object["metadata"]["uid"]: change.object for change in changes if change.object["kind"] == "Pod"}
    for number, pod in enumerate(pods.values()):
        objects.see(Change("ADDED", succeeded(dict(pod), f"uid-{number}")))
    for change in stream("jobset_succeeds")[len(changes) :]:
        objects.see(change)
    expected = RunObjects("run")
    for change in stream("jobset_succeeds"):
        expected.see(change)
    assert status(objects) == status(expected)


def test_a_forged_job_with_another_name_or_uid_does_not_start_a_new_attempt() -> None:
    objects, changes = running("jobset_succeeds")
    job = next(change.object for change in changes if change.object["kind"] == "Job")
    labels = {**job["metadata"]["labels"], "jobset.sigs.k8s.io/restart-attempt": "2147483647"}
    other = [{**job["metadata"]["ownerReferences"][0], "uid": "another"}]
    for fields in ({"name": "run-node-7"}, {"name": "forged"}, {"ownerReferences": other}, {}):
        objects.see(Change("ADDED", {**job, "metadata": {**job["metadata"], "labels": labels, "uid": "f", **fields}}))
    assert status(objects).attempt == 0


def test_a_late_deletion_of_an_old_jobset_does_not_make_it_current() -> None:
    changes = stream("trainjob_succeeds")
    objects = RunObjects("run")
    for change in changes:
        objects.see(change)
    jobset = next(change.object for change in changes if change.object["kind"] == "JobSet")
    before = status(objects)
    objects.see(Change("DELETED", {**jobset, "metadata": {**jobset["metadata"], "uid": "old"}, "spec": {}}))
    assert status(objects) == before
