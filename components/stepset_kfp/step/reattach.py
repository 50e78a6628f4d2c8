"""Finds the run of an earlier try of a step. The step then follows, resumes or recreates this run.

A step is retried if the pod is evicted, if the node of the pod is lost, or if a user retries the step. The name
and a label of the run contain the hash of the step's identity (owner.py).
"""

from __future__ import annotations

import copy
import time

from stepset.backends.kubernetes.api.portal import Connection
from stepset.backends.kubernetes.api.resources import resource_of
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.find import newest
from stepset.errors import InfrastructureError
from stepset.run_status import Phase
from stepset.targets.gang import QUEUE_LABEL
from stepset.targets.metadata import SUBMISSION, VERDICT
from stepset_kfp.step.create import Manifest, RunCreator
from stepset_kfp.step.starts import RESUMES, Starts, starts_of
from stepset_kfp.step.step_log import log_lines

DELETION_TIMEOUT = 180.0
"""Maximum seconds to wait until an earlier run has been deleted. In this time the run may write a checkpoint.

A new run with the same name can be created only after the earlier run has been deleted."""
_POLL_SECONDS = 0.5


def reattach(connection: Connection, creator: RunCreator) -> tuple[Manifest, tuple[str, ...]]:
    """Finds, resumes or creates the run of a step. Returns the workload of the run, and notes for the log.

    The function reads the job only if it creates a run, or completes the creation of a run. The function reads the job
    before it deletes an earlier run.

    Raises the errors of `RunCreator.make`. Raises InfrastructureError if an earlier run is not deleted in time.
    """
    backend = KubernetesBackend(connection, namespace=creator.namespace, interface="kfp")
    if (existing := _existing(backend, creator)) is None:
        return creator.make(creator.request())
    status, metadata = backend.read(existing), existing["metadata"]
    starts, notes = starts_of(existing, status.attempt), tuple[str, ...]()
    earlier, deleting = f"run {status.name} of an earlier try", metadata.get("deletionTimestamp")
    # The follower of a run stores a verdict. A failed run without a verdict has failed while no step followed it, so
    # this step reports the failure, and the next try recreates the run.
    failed = status.phase in (Phase.FAILED, Phase.LOST) and VERDICT in (metadata.get("annotations") or {})
    suspended = not status.phase.final and _suspended(existing)
    if deleting or failed or (suspended and existing["kind"] != "JobSet"):
        request = creator.request(starts.total)  # before the run is deleted, because the job may be unreadable
        if deleting:
            log_lines(f"stepset: {earlier} is being deleted; waiting for its deletion")
        else:
            how = f"ended as {status.phase.value}" if failed else "was suspended when its step was terminated"
            log_lines(f"stepset: {earlier} {how}; it is recreated")
            backend.end(existing)
        _wait_until_deleted(backend, existing)
        return creator.make(request)
    if SUBMISSION in (metadata.get("labels") or {}):
        existing, notes = creator.make(creator.request(starts.earlier))
    if suspended:
        log_lines(f"stepset: run {status.name} was suspended when an earlier try was terminated; it is resumed")
        return resume(connection, existing, starts), notes
    log_lines(f"stepset: run {status.name} exists already ({status.phase.value}); reattaching to it")
    return existing, notes


def _existing(backend: KubernetesBackend, creator: RunCreator) -> Manifest | None:
    """Returns the workload of the step's run. Returns None if the step has no run."""
    try:
        found = backend.owned(creator.owner)
    except InfrastructureError:
        creator.report_missing_permissions()
        raise
    # A run that is being deleted may have another name than its successor, because the name contains the job's name.
    kept = [each for each in found if not each["metadata"].get("deletionTimestamp")]
    return newest(kept or found) if found else None


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


def _suspended(workload: Manifest) -> bool:
    """Returns whether a user or a step, and not a queue, has suspended a workload."""
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
