"""Finds the run of an earlier try of a step. The step then follows, resumes or recreates this run.

A step is retried if the pod is evicted, if the node of the pod is lost, or if a user retries the step. The name
and a label of the run contain the hash of the step's identity (owner.py).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from stepset.backends.base import RunRequest
from stepset.backends.kubernetes.api.connection import Connection
from stepset.backends.kubernetes.api.resources import resource_of
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.errors import InfrastructureError
from stepset.run_status import Phase
from stepset.targets.gang import QUEUE_LABEL
from stepset.targets.metadata import OWNER_HASH
from stepset_kfp.step.starts import RESUMES, Starts, starts_of, with_earlier_starts
from stepset_kfp.step.step_log import log_lines

DELETION_TIMEOUT = 180.0
"""Maximum seconds to wait until an earlier run has been deleted. In this time the run may write a checkpoint.

A new run with the same name can be created only after the earlier run has been deleted."""
_POLL_SECONDS = 0.5

Manifest = Mapping[str, Any]


def reattach(
    backend: KubernetesBackend, connection: Connection, request: RunRequest
) -> tuple[Manifest, tuple[str, ...]]:
    """Finds, resumes or creates the run of a request. Returns the workload of the run, and notes for the log.

    The request must have a name. The owner of the request is the hash of the step's identity, or empty.

    Raises BadInputError if the existing run has another owner or another job. Raises InfrastructureError if an earlier
    run is not deleted in time, or if the server cannot be reached.
    """
    assert request.name is not None
    existing = backend.workload(request.name)
    if existing is None or (existing["metadata"].get("labels") or {}).get(OWNER_HASH) != request.owner:
        return _create_or_adopt(backend, request)
    status = backend.read(existing)
    starts = starts_of(existing, status.attempt)
    request = with_earlier_starts(request, starts.earlier)
    if existing["metadata"].get("deletionTimestamp"):
        log_lines(f"stepset: run {status.name} of an earlier try is being deleted; waiting for its deletion")
    elif status.phase in (Phase.FAILED, Phase.LOST):
        log_lines(f"stepset: run {status.name} of an earlier try ended as {status.phase.value}; it is recreated")
        backend.end(existing)
    elif status.phase is Phase.SUCCEEDED or not _suspended(existing):
        log_lines(f"stepset: run {status.name} exists already ({status.phase.value}); reattaching to it")
        return _create_or_adopt(backend, request)
    elif existing["kind"] == "JobSet":
        existing, _ = _create_or_adopt(backend, request)  # raises BadInputError if the run has another job
        log_lines(f"stepset: run {status.name} was suspended when an earlier try was terminated; it is resumed")
        return resume(connection, existing, starts), ()
    else:
        log_lines(f"stepset: run {status.name} was suspended when an earlier try was terminated; it is recreated")
        backend.end(existing)
    _wait_until_deleted(backend, existing)
    return _create_or_adopt(backend, with_earlier_starts(request, starts.total))


def resume(connection: Connection, jobset: Manifest, starts: Starts) -> Manifest:
    """Resumes a suspended JobSet. The ranks continue from their checkpoint.

    The annotations of the pod templates may be changed while the JobSet is suspended. The resumed pods and the pods of
    later restarts have the new annotations (jobset v0.12 pkg/controllers/jobset_controller.go, resumeJob).
    """
    resumes = {RESUMES: str(starts.resumes + 1)}
    jobs = copy.deepcopy(list(jobset["spec"]["replicatedJobs"]))
    for job in jobs:
        pods = job["template"]["spec"]["template"].setdefault("metadata", {})
        pods["annotations"] = {**(pods.get("annotations") or {}), **resumes}
    metadata = jobset["metadata"]
    body = {
        "metadata": {"uid": metadata["uid"], "annotations": resumes},
        "spec": {"suspend": False, "replicatedJobs": jobs},
    }
    reply = connection.patch(f"{resource_of(jobset).path(metadata['namespace'])}/{metadata['name']}", body)
    if not reply.accepted:
        reason = str(reply.body.get("message", reply.status)).rstrip(".")
        raise InfrastructureError(f"run {metadata['name']} cannot be resumed: {reason}")
    return reply.body


def _create_or_adopt(backend: KubernetesBackend, request: RunRequest) -> tuple[Manifest, tuple[str, ...]]:
    submission, notes = backend.make(request)
    return submission.workload, notes


def _suspended(workload: Manifest) -> bool:
    """Returns whether a user or a step has suspended a workload. Returns False if a queue has suspended it."""
    queued = QUEUE_LABEL in (workload["metadata"].get("labels") or {})
    spec = workload["spec"]
    return not queued and bool(spec.get("suspend") or spec.get("replicas") == 0)


def _wait_until_deleted(backend: KubernetesBackend, workload: Manifest) -> None:
    metadata = workload["metadata"]
    until = time.monotonic() + DELETION_TIMEOUT
    while not backend.gone(workload):
        if time.monotonic() > until:
            raise InfrastructureError(
                f"run {metadata['name']} of an earlier try still exists after {DELETION_TIMEOUT:.0f} s; check its pods"
            )
        time.sleep(_POLL_SECONDS)
