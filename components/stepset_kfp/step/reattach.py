"""Finds the run of a step's earlier try, and reattaches to it, resumes it, or recreates it.

A step is retried when its pod is evicted, its node is lost, or a user retries it. Its run has the hash of
the step's identity (owner.py) in its name and as a label.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stepset.backends.base import RunRequest
from stepset.backends.kubernetes.api.connection import Connection
from stepset.backends.kubernetes.api.resources import resource_of
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.errors import InfrastructureError
from stepset.run_status import Phase
from stepset.targets.gang import QUEUE_LABEL
from stepset.targets.metadata import OWNER_HASH
from stepset_kfp.step.step_log import log_lines

DELETION_TIMEOUT = 180.0
"""Maximum seconds for a run to write its last checkpoint and to be deleted; then a new run can have its name."""
_POLL_SECONDS = 0.5
_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"

Manifest = Mapping[str, Any]


def reattach(
    backend: KubernetesBackend, connection: Connection, request: RunRequest
) -> tuple[Manifest, tuple[str, ...]]:
    """Returns the workload of a request's run, and notes on it. The request must have a name and an owner.

    Raises BadInputError if the existing run has another owner or another job, and InfrastructureError if an earlier
    run does not end or the server cannot be reached.
    """
    assert request.name is not None
    existing = backend.workload(request.name)
    if existing is None or (existing["metadata"].get("labels") or {}).get(OWNER_HASH) != request.owner:
        return _create_or_adopt(backend, request)
    status = backend.read(existing)
    if existing["metadata"].get("deletionTimestamp"):
        log_lines(f"stepset: run {status.name} of an earlier try is being deleted; waiting for its deletion")
    elif status.phase in (Phase.FAILED, Phase.LOST):
        log_lines(f"stepset: run {status.name} of an earlier try ended as {status.phase.value}; it is recreated")
        backend.end(existing)
    elif status.phase is Phase.SUCCEEDED or not _suspended(existing):
        log_lines(f"stepset: run {status.name} exists already ({status.phase.value}); reattaching to it")
        return _create_or_adopt(backend, request)
    elif existing["kind"] == "JobSet":
        existing, _ = _create_or_adopt(backend, request)  # raises if it is another job
        log_lines(f"stepset: run {status.name} was suspended when an earlier try was terminated; it is resumed")
        return resume(connection, existing, status.attempt + 1), ()
    else:
        log_lines(f"stepset: run {status.name} was suspended when an earlier try was terminated; it is recreated")
        backend.end(existing)
    _wait_until_deleted(backend, existing)
    return _create_or_adopt(backend, replace(request, attempt=status.attempt + 1))


def resume(connection: Connection, jobset: Manifest, attempt: int) -> Manifest:
    """Resumes a suspended JobSet; its ranks continue from their checkpoint.

    The pods read the attempt from an annotation of their template. Annotations may be changed while the JobSet is
    suspended; the resumed pods have the new values (jobset v0.12 pkg/controllers/jobset_controller.go, resumeJob).
    """
    jobs = copy.deepcopy(list(jobset["spec"]["replicatedJobs"]))
    for job in jobs:
        pods = job["template"]["spec"]["template"].setdefault("metadata", {})
        pods["annotations"] = {**(pods.get("annotations") or {}), _RESTARTS: str(attempt)}
    metadata = jobset["metadata"]
    body = {
        "metadata": {"uid": metadata["uid"]},
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
    """Returns whether a user or a step, not a queue, suspended a workload."""
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
