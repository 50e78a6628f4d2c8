"""Finds the run of a step's earlier try: continues it, resumes it, or creates it anew.

A step is retried when its pod is evicted, its node is lost, or a user retries it. Its run is found by name and
recognised by the owner's hash.
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
from stepset.targets.gang import QUEUE_LABEL
from stepset.targets.metadata import OWNER_HASH
from stepset.watch.state import Phase
from stepset_kfp.step.step_log import say

GONE_WITHIN = 180.0
"""Seconds that a run may take to end, its ranks' last checkpoint included, before another takes its name."""
_LOOK = 0.5
_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"

Manifest = Mapping[str, Any]


def reattach(
    backend: KubernetesBackend, connection: Connection, request: RunRequest
) -> tuple[Manifest, tuple[str, ...]]:
    """Returns the workload of a request's run, and notes on it. The request has a name and an owner.

    Raises BadInputError if another owner has the name or the job is not the one that was begun, and InfrastructureError
    if an earlier run does not end or the server cannot be reached.
    """
    assert request.name is not None
    there = backend.workload(request.name)
    if there is None or (there["metadata"].get("labels") or {}).get(OWNER_HASH) != request.owner:
        return _made(backend, request)
    status = backend.read(there)
    if there["metadata"].get("deletionTimestamp"):
        say(f"stepset: run {status.name} of an earlier try is being deleted; waiting until it is gone")
    elif status.phase in (Phase.FAILED, Phase.LOST):
        say(f"stepset: run {status.name} of an earlier try {status.phase.value.lower()}; it is made anew")
        backend.end(there)
    elif status.phase is Phase.SUCCEEDED or not _suspended(there):
        say(f"stepset: run {status.name} is there already ({status.phase.value}); going on with it")
        return _made(backend, request)
    elif there["kind"] == "JobSet":
        there, _ = _made(backend, request)  # raises if it is another job
        say(f"stepset: run {status.name} was suspended when an earlier try was told to end; it is resumed")
        return resume(connection, there, status.attempt + 1), ()
    else:
        say(f"stepset: run {status.name} was suspended when an earlier try was told to end; it is made anew")
        backend.end(there)
    _wait_gone(backend, there)
    return _made(backend, replace(request, attempt=status.attempt + 1))


def resume(connection: Connection, jobset: Manifest, attempt: int) -> Manifest:
    """Starts a suspended JobSet again; its ranks begin from their checkpoint.

    The pods read their attempt from the annotation. A template's annotations may be changed while the JobSet is
    suspended, and are those of the resumed pods (jobset v0.12 pkg/controllers/jobset_controller.go, resumeJob).
    """
    jobs = copy.deepcopy(list(jobset["spec"]["replicatedJobs"]))
    for job in jobs:
        about = job["template"]["spec"]["template"].setdefault("metadata", {})
        about["annotations"] = {**(about.get("annotations") or {}), _RESTARTS: str(attempt)}
    body = {
        "metadata": {"uid": jobset["metadata"]["uid"]},
        "spec": {"suspend": False, "replicatedJobs": jobs},
    }
    about = jobset["metadata"]
    reply = connection.patch(f"{resource_of(jobset).path(about['namespace'])}/{about['name']}", body)
    if not reply.accepted:
        said = str(reply.body.get("message", reply.status)).rstrip(".")
        raise InfrastructureError(f"run {jobset['metadata']['name']} cannot be resumed: {said}")
    return reply.body


def _made(backend: KubernetesBackend, request: RunRequest) -> tuple[Manifest, tuple[str, ...]]:
    made, notes = backend.make(request)
    return made.workload, notes


def _suspended(workload: Manifest) -> bool:
    """Whether a workload was suspended by a request, not by its queue."""
    queued = QUEUE_LABEL in (workload["metadata"].get("labels") or {})
    spec = workload["spec"]
    return not queued and bool(spec.get("suspend") or spec.get("replicas") == 0)


def _wait_gone(backend: KubernetesBackend, workload: Manifest) -> None:
    about = workload["metadata"]
    until = time.monotonic() + GONE_WITHIN
    while backend.workload(about["name"], about["uid"]) is not None:
        if time.monotonic() > until:
            raise InfrastructureError(
                f"run {about['name']} of an earlier try is not gone after {GONE_WITHIN:.0f} s; look at its pods"
            )
        time.sleep(_LOOK)
