"""Runs the job of a step on a cluster.

The step creates or finds the run, and follows the run. When the step is terminated, the input `on_interrupt` determines
whether the step suspends the run, deletes the run, or leaves the run unchanged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.base import RunListener, RunRequest
from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.api.resources import WORKLOADS, Resource
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.stop import delete, stays_suspended, suspend
from stepset.backends.kubernetes.submit.access_review import grant_of
from stepset.backends.kubernetes.submit.queues import check_queue
from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import RunStatus
from stepset.spec.job import TrainingJob
from stepset.targets.gang import queue_labels
from stepset.targets.metadata import OWNER_HASH
from stepset.targets.request import check_target
from stepset.watch.cluster.follow_policy import Timeouts
from stepset_kfp.access_modes import WORKSPACE_REMEDY, allow_several_nodes
from stepset_kfp.backend import in_kfp_pod
from stepset_kfp.step.interrupt import BUDGET, Interrupt
from stepset_kfp.step.orphan import orphan_stop
from stepset_kfp.step.owner import PIPELINE_RUN, Identity, identity_of, own_pod
from stepset_kfp.step.preflight import preflight
from stepset_kfp.step.reattach import Manifest, reattach
from stepset_kfp.step.starts import with_counted_resumes
from stepset_kfp.step.step_log import log_lines
from stepset_kfp.task_config import TaskConfig, claims

CLAIMS = Resource("", "v1", "persistentvolumeclaims")
BUDGET_OUTSIDE_PODS = 10.0
"""The number of seconds for the last request of a step outside of a pod. argoexec does not kill such a step."""
CREATION_GRACE = 0.5
"""The number of seconds for which a terminated step waits until the run exists.

The step waits if the step has sent a request to create the run, but has not received the response."""
_POLL_SECONDS = 0.05


def run_on_cluster(request: RunRequest, given: Mapping[str, Any], listener: RunListener) -> RunStatus:
    """Runs a job on the cluster, waits until the run has finished, and returns the last status of the run.

    Raises the errors of `KubernetesBackend.start`. Raises InfrastructureError if the account of the step lacks
    a permission that the run needs.
    """
    target = given["target"] or "jobset"
    check_target(target)
    timeouts = Timeouts(given["admission_timeout"] or None, given["startup_timeout"] or None)
    with connect(interface="kfp") as connection, connect(interface="kfp") as spare:
        namespace = given["namespace"] or connection.namespace

        def check_permissions() -> None:
            preflight(connection, namespace, grant_of(request.job, target, "kfp"))

        try:
            pod = own_pod(connection, os.environ["KFP_POD_NAME"], target) if in_kfp_pod(os.environ) else {}
            identity = identity_of(pod) if pod else None  # without an identity, no retry can find the run
        except InfrastructureError:
            check_permissions()  # raises an error with all missing permissions
            raise
        orphan, note = orphan_stop(given, identity, pod, namespace)
        log_lines(*(f"stepset: {each}" for each in (note,) if each))
        owned = replace(_owned(request, identity, namespace), orphan=orphan)
        last = LastRequest(spare, namespace, target, owned, given["on_interrupt"])
        # The signal handlers are installed before the search for the run. If a run of an earlier try exists, a signal
        # during the search must also stop this run.
        with Interrupt(spare, last, BUDGET if identity else BUDGET_OUTSIDE_PODS) as interrupt:
            check_permissions()
            _check_claims(connection, namespace, given.get("task_config"), request.job.num_nodes)
            _check_queue(connection, namespace, request.job, target)
            backend = KubernetesBackend(
                connection, namespace=namespace, target=target, timeouts=timeouts, interface="kfp"
            )
            workload, notes = reattach(backend, connection, owned)
            interrupt.workload = workload
            log_lines(f"stepset: {workload['kind']} {workload['metadata']['name']} in namespace {namespace}")
            return backend.follow(workload, listener, notes).wait()


@dataclass(frozen=True)
class LastRequest:
    """Suspends or deletes the run of a terminated step.

    `how` is the input `on_interrupt`: suspend, delete or leave. With `suspend`, the run is deleted if no retry can find
    the run, or if the run would not stay suspended. `connection` must be used only by this object.
    """

    connection: Connection
    namespace: str
    target: str
    request: RunRequest
    how: str

    def __call__(self, workload: Manifest | None) -> str:
        """Suspends or deletes the run, or leaves it running. Returns a message for the log.

        `workload` is the workload of the run, or None if the step does not yet have it.
        """
        if self.how == "leave":
            return f"run {self.request.name} continues"
        if workload is None and (workload := self._being_created()) is None:
            return "no run was created"
        findable = self.request.owner is not None
        keep = self.how == "suspend" and findable and stays_suspended(workload)
        backend = KubernetesBackend(self.connection, namespace=self.namespace, target=self.target, interface="kfp")
        backend.end(workload, suspend if keep else delete)
        return f"run {workload['metadata']['name']} is {'suspended' if keep else 'deleted'}"

    def _being_created(self) -> Manifest | None:
        """Waits up to CREATION_GRACE seconds for the workload of this step's run, and returns it.

        Returns None if the workload does not exist after this time, or if the workload belongs to another step.
        """
        if self.request.name is None:
            return None
        path = f"{WORKLOADS[self.target].path(self.namespace)}/{self.request.name}"
        until = time.monotonic() + CREATION_GRACE
        while True:
            reply = self.connection.get(path)
            labels = (reply.body.get("metadata") or {}).get("labels") or {}
            if reply.accepted:
                return reply.body if labels.get(OWNER_HASH) == self.request.owner else None
            if time.monotonic() > until:
                return None
            time.sleep(_POLL_SECONDS)


def _check_claims(connection: Connection, namespace: str, task: TaskConfig | None, num_nodes: int) -> None:
    """Raises BadInputError if several nodes would mount a PersistentVolumeClaim that only one node can mount.

    With such a claim, some pods would never start. If the account of the step has no permission to read a claim, this
    claim is not checked.
    """
    for claim in claims(task) if num_nodes > 1 else ():
        reply = connection.get(f"{CLAIMS.path(namespace)}/{claim}")
        modes = (reply.body.get("spec") or {}).get("accessModes") if reply.accepted else None
        if modes is not None and not allow_several_nodes(modes):
            raise BadInputError(
                f"volumes: PersistentVolumeClaim {claim} is {', '.join(modes)}, but {num_nodes} nodes mount it; request"
                f" ReadWriteMany (for a workspace: {WORKSPACE_REMEDY})"
            )


def _check_queue(connection: Connection, namespace: str, job: TrainingJob, target: str) -> None:
    """Raises BadInputError if the queue or the priority class of a job does not exist.

    Kueue would never admit such a run. The function does not check a queue or a priority class that the account of the
    step has no permission to read.
    """
    labels = job.labels if target == "volcano" else {**job.labels, **queue_labels(job)}
    if problems := connection.call(
        check_queue, connection.client, namespace, labels, grant_of(job, target, "kfp")
    ).problems:
        raise BadInputError(*problems)


def _owned(request: RunRequest, identity: Identity | None, namespace: str) -> RunRequest:
    """Adds the name of the run and the owner of the run to a request.

    In the pod of a pipeline, the owner is the identity of the step. Outside of such a pod, the run has no owner.

    If the Workflow and the run are in the same namespace, the Workflow becomes the Kubernetes owner of the run.
    """
    if identity is None:
        import secrets

        name = f"{request.job.name}-{secrets.token_hex(3)}"
        return replace(request, name=name, owner=None)
    owned_by = identity.owned_by if identity.namespace == namespace else None
    if owned_by is None:
        log_lines("stepset: the run has no owner; deleting the pipeline run does not delete it")
    job = request.job.model_copy(update={"labels": {**request.job.labels, PIPELINE_RUN: identity.run_id}})
    owned = replace(request, job=job, name=identity.run_name(job.name), owner=identity.owner, owned_by=owned_by)
    return with_counted_resumes(owned)
