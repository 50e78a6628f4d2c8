"""Runs a step's training on a cluster: finds or creates the run, follows it, and ends it if the step is terminated."""

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
from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import RunStatus
from stepset.targets.metadata import OWNER_HASH
from stepset.targets.request import check_target
from stepset.watch.cluster.follow_policy import Timeouts
from stepset_kfp.backend import in_kfp_pod
from stepset_kfp.step.interrupt import BUDGET, Interrupt
from stepset_kfp.step.owner import PIPELINE_RUN, Identity, identity_of, own_pod
from stepset_kfp.step.preflight import preflight
from stepset_kfp.step.reattach import Manifest, reattach
from stepset_kfp.step.step_log import log_lines
from stepset_kfp.task_config import TaskConfig, claims

CLAIMS = Resource("", "v1", "persistentvolumeclaims")
BUDGET_OUTSIDE_PODS = 10.0
"""Seconds for the last request of a step that runs outside of a pod, where argoexec does not kill it."""
CREATION_GRACE = 0.5
"""Seconds for which a terminated step waits for a run to appear, if the server has not answered its creation."""
_POLL_SECONDS = 0.05


def run_on_cluster(request: RunRequest, given: Mapping[str, Any], listener: RunListener) -> RunStatus:
    """Runs a job to its end; raises like `KubernetesBackend.start`, and InfrastructureError for missing permissions."""
    target = given["target"] or "jobset"
    check_target(target)
    timeouts = Timeouts(given["admission_timeout"] or None, given["startup_timeout"] or None)
    with connect() as connection, connect() as spare:
        namespace = given["namespace"] or connection.namespace

        def check_permissions() -> None:
            preflight(connection, namespace, grant_of(request.job, target, "kfp"))

        try:
            identity = _identity(connection, target)
        except InfrastructureError:
            check_permissions()  # raises an error that names all missing permissions
            raise
        owned = _owned(request, identity, namespace)
        last = LastRequest(spare, namespace, target, owned, given["on_interrupt"])
        # Signals are handled before the run is looked for: an earlier try's run may exist, and would outlive this step.
        with Interrupt(spare, last, BUDGET if identity else BUDGET_OUTSIDE_PODS) as interrupt:
            check_permissions()
            _check_claims(connection, namespace, given.get("task_config"), request.job.num_nodes)
            backend = KubernetesBackend(
                connection, namespace=namespace, target=target, timeouts=timeouts, interface="kfp"
            )
            workload, notes = reattach(backend, connection, owned)
            interrupt.workload = workload
            log_lines(f"stepset: {workload['kind']} {workload['metadata']['name']} in namespace {namespace}")
            return backend.follow(workload, listener, notes).wait()


@dataclass(frozen=True)
class LastRequest:
    """Ends the run of a terminated step; `how` is suspend, delete or leave.

    A run that no retry can find, or that does not stay suspended, is deleted instead of suspended. `connection` must
    not be shared.
    """

    connection: Connection
    namespace: str
    target: str
    request: RunRequest
    how: str

    def __call__(self, workload: Manifest | None) -> str:
        """Ends the run; returns a message for the log."""
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
        """Returns this step's run if it appears within CREATION_GRACE, otherwise None."""
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
    """Raises BadInputError if several nodes mount a claim that only one node can mount: the pods would never all start.

    Claims that this account may not read are not checked.
    """
    for claim in claims(task) if num_nodes > 1 else ():
        reply = connection.get(f"{CLAIMS.path(namespace)}/{claim}")
        modes = (reply.body.get("spec") or {}).get("accessModes") if reply.accepted else None
        if modes is not None and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
            raise BadInputError(
                f"volumes: PersistentVolumeClaim {claim} is {', '.join(modes)}, but {num_nodes} nodes mount it; request"
                " ReadWriteMany (for a workspace: kubernetes={'pvcSpecPatch': {'accessModes': ['ReadWriteMany']}})"
            )


def _identity(connection: Connection, target: str) -> Identity | None:
    """Returns the step's identity; None outside of a pipeline's pod, where no retry can find the run."""
    return identity_of(own_pod(connection, os.environ["KFP_POD_NAME"], target)) if in_kfp_pod(os.environ) else None


def _owned(request: RunRequest, identity: Identity | None, namespace: str) -> RunRequest:
    """Returns the request with a name and an owner; the Workflow owns the run if both are in the same namespace."""
    if identity is None:
        import secrets

        name = f"{request.job.name}-{secrets.token_hex(3)}"
        return replace(request, name=name, owner=None)
    owned_by = identity.owned_by if identity.namespace == namespace else None
    if owned_by is None:
        log_lines("stepset: the run has no owner; deleting the pipeline run does not delete it")
    job = request.job.model_copy(update={"labels": {**request.job.labels, PIPELINE_RUN: identity.run_id}})
    return replace(request, job=job, name=identity.run_name(job.name), owner=identity.owner, owned_by=owned_by)
