"""The states of Volcano Jobs; tests/cluster/test_volcano.py runs some of them.

The objects follow Volcano's API (volcano.sh/apis v1.13 batch/v1alpha1: JobStatus, JobState, labels.go); the pods are
those of recorded JobSets.
"""

from __future__ import annotations

from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.targets.making import rendered
from tests.watch.cluster.streams import Object, stream

UID = "the-job"


def volcano_job(phase: str, *, retries: int = 0, **job: Any) -> Change:
    (manifest,) = [each for each in rendered("volcano", run="run", **job) if each["kind"] == "Job"]
    meta = {**manifest["metadata"], "uid": UID, "creationTimestamp": "2026-11-21T03:00:00Z"}
    state = {"phase": phase, "lastTransitionTime": "2026-11-21T03:40:00Z", "message": f"it is {phase}"}
    return Change("MODIFIED", {**manifest, "metadata": meta, "status": {"state": state, "retryCount": retries}})


def pods(name: str, state: str, attempt: int = 0) -> list[Object]:
    """Pods of a recorded run in a phase, with Volcano's labels and annotations."""
    found: dict[str, Object] = {}
    for change in stream(name):
        if change.object["kind"] == "Pod" and change.object["status"]["phase"] == state:
            found.setdefault(change.object["metadata"]["uid"], dict(change.object))
    return [_volcanos(each, index, attempt) for index, each in enumerate(found.values())]


def _volcanos(pod: Object, index: int, attempt: int) -> Object:
    meta = pod["metadata"]
    marks = {"volcano.sh/task-spec": "node", "volcano.sh/job-name": "run"}
    notes = {**marks, "volcano.sh/task-index": str(index), "volcano.sh/job-retry-count": str(attempt)}
    labels = {key: value for key, value in meta["labels"].items() if key.startswith("stepset.dev/")}
    owner = {"kind": "Job", "name": "run", "uid": UID, "controller": True}
    changed = {
        **{key: value for key, value in meta.items() if not key.startswith("deletion")},
        "name": f"run-node-{index}",
        "uid": f"{meta['uid']}-{attempt}",
        "labels": {**labels, **marks},
        "annotations": notes,
        "ownerReferences": [owner],
    }
    return {**pod, "metadata": changed}


def status(*changes: Change | Object) -> RunStatus:
    objects = RunObjects("run")
    for change in changes:
        objects.see(change if isinstance(change, Change) else Change("ADDED", change))
    return status_of(objects, Reports(), 0.0)


@pytest.mark.parametrize(
    ("volcanos", "phase", "reason"),
    [
        ("Pending", Phase.PENDING, "Queued"),
        ("Running", Phase.PENDING, "Starting"),
        ("Aborted", Phase.SUSPENDED, ""),
        ("Aborting", Phase.SUSPENDED, ""),
        ("Completed", Phase.SUCCEEDED, ""),
        ("Failed", Phase.FAILED, "Lost"),
        ("Terminated", Phase.FAILED, "Lost"),
        ("Restarting", Phase.RESTARTING, "Starting"),
    ],
)
def test_volcanos_phase_determines_the_phase_of_the_run(volcanos: str, phase: Phase, reason: str) -> None:
    found = status(volcano_job(volcanos, num_nodes=2, restart={"max_restarts": 1}))
    assert (found.phase, found.reason) == (phase, reason)
    assert found.finished == (1795232400.0 if phase.final else None)


def test_the_ranks_are_in_its_pods() -> None:
    job = volcano_job("Running", num_nodes=2, procs_per_node=2)
    found = status(job, *pods("jobset_succeeds", "Running"))
    assert (found.phase, found.world_size) == (Phase.RUNNING, 4)
    assert [(row.source, row.pod, row.state) for row in found.ranks] == [
        ("rank 0", "run-node-0", "Running"),
        ("rank 1", "run-node-0", "Running"),
        ("rank 2", "run-node-1", "Running"),
        ("rank 3", "run-node-1", "Running"),
    ]


def test_the_first_failure_is_named() -> None:
    job = volcano_job("Terminated", num_nodes=2, procs_per_node=1)
    failed = [pod for pod in pods("jobset_fails", "Failed") if "ValueError" in str(pod)]
    found = status(job, *failed)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.error) == (FailureKind.USER_ERROR, "ValueError: bad learning rate")


def test_a_restart_is_read_from_the_retry_count_and_explained_by_the_previous_pods() -> None:
    failed = [pod for pod in pods("jobset_fails", "Failed") if "ValueError" in str(pod)]
    again = pods("jobset_succeeds", "Running", attempt=1)
    job = {"num_nodes": 2, "procs_per_node": 1, "restart": {"max_restarts": 2}}
    found = status(volcano_job("Running", **job), *failed, volcano_job("Running", retries=1, **job), *again)
    assert (found.phase, found.attempt) == (Phase.RUNNING, 1)
    assert found.notes[0].startswith("restart 1: rank ") and found.notes[0].endswith("ValueError: bad learning rate")
    assert {row.restarts for row in found.ranks} == {1}


@pytest.mark.parametrize("volcanos", ["Restarting", "Failed"])
def test_volcano_counts_a_restart_that_it_does_not_perform(volcanos: str) -> None:
    """Volcano increments retryCount, compares it with maxRetry, and fails the job (state/restarting.go)."""
    failed = [pod for pod in pods("jobset_fails", "Failed", attempt=2) if "ValueError" in str(pod)]
    job = {"num_nodes": 2, "procs_per_node": 1, "restart": {"max_restarts": 2}}
    before = status(volcano_job("Running", retries=2, **job), *failed)
    found = status(volcano_job("Running", retries=2, **job), *failed, volcano_job(volcanos, retries=3, **job))
    assert (before.attempt, found.attempt) == (2, 2)
    assert found.phase is (Phase.FAILED if volcanos == "Failed" else before.phase)
    assert [row.pod for row in found.ranks] == [row.pod for row in before.ranks]
    if volcanos == "Failed":
        assert found.failure is not None and found.failure.error == "ValueError: bad learning rate"


def test_a_pod_that_exceeded_the_deadline_ends_the_run() -> None:
    late = pods("jobset_succeeds", "Running")[0]
    ended = {**late["status"], "phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"}
    job = volcano_job("Terminated", num_nodes=2, procs_per_node=2, deadline="2h")
    found = status(job, {**late, "status": ended})
    assert found.failure is not None
    assert (found.failure.kind, found.failure.message) == (
        FailureKind.DEADLINE_EXCEEDED,
        "the run took longer than its deadline of 2h.",
    )


def test_a_pod_without_room_is_unschedulable_and_not_queued() -> None:
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    pod = pods("jobset_succeeds", "Running")[0]
    pending = {**pod, "spec": {**pod["spec"], "nodeName": ""}, "status": {"phase": "Pending", "conditions": [waiting]}}
    found = status(volcano_job("Pending", num_nodes=2), pending)
    assert (found.phase, found.reason) == (Phase.PENDING, "Unschedulable")


@pytest.mark.parametrize("name", ["forged-1", "run-node-01", "run-node-1", "run-other-0"])
@pytest.mark.parametrize("volcanos", ["Pending", "Running"])
def test_a_pod_with_another_name_than_that_of_its_place_is_not_a_pod_of_the_run(volcanos: str, name: str) -> None:
    job, (first, *_) = volcano_job(volcanos, num_nodes=2), pods("jobset_succeeds", "Running")
    other = {**first, "metadata": {**first["metadata"], "name": name}}
    assert first["metadata"]["name"] == "run-node-0"
    assert status(job, other) == status(job)
    assert [row.pod for row in status(job, first).ranks if row.pod] == ["run-node-0"]
