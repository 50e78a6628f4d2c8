"""Creates the run of a step on a cluster. Only the creation of a run reads the job of the step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from stepset.backends.base import RunRequest
from stepset.backends.kubernetes.api.portal import Connection
from stepset.backends.kubernetes.api.resources import Resource
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.submit.access_review import grant_of
from stepset.backends.kubernetes.submit.queues import check_queue
from stepset.defaults import TARGET
from stepset.errors import BadInputError, InfrastructureError
from stepset.spec.job import TrainingJob
from stepset.targets.gang import queue_labels
from stepset.targets.workload_kinds import WORKLOAD_KINDS
from stepset_kfp.backend import in_kfp_pod
from stepset_kfp.step.orphan import orphan_stop
from stepset_kfp.step.owner import PIPELINE_RUN, Identity, identity_of, own_pod
from stepset_kfp.step.preflight import preflight
from stepset_kfp.step.run_record import RECORD, RunRecord
from stepset_kfp.step.starts import with_counted_resumes, with_earlier_starts
from stepset_kfp.step.step_job import StepJob
from stepset_kfp.step.step_log import log_lines
from stepset_kfp.task_config import WORKSPACE_REMEDY, TaskConfig, allow_several_nodes, claims

CLAIMS = Resource("", "v1", "persistentvolumeclaims")

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class RunCreator:
    """Creates the runs of one step.

    Args:
        connection: the connection to the cluster.
        namespace: the namespace of the run.
        job: the job of the step.
        given: the inputs of the component.
    """

    connection: Connection
    namespace: str
    job: StepJob
    given: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The kind of the workload of a new run."""
        return self.given["target"] or TARGET

    @cached_property
    def pod(self) -> Mapping[str, Any]:
        """The pod of the step. Empty outside of a pod of a pipeline. Raises InfrastructureError."""
        if not in_kfp_pod(os.environ):
            return {}
        try:
            return own_pod(self.connection, os.environ["KFP_POD_NAME"], self.target)
        except InfrastructureError:
            self.report_missing_permissions()
            raise

    @cached_property
    def identity(self) -> Identity | None:
        """The identity of the step, or None outside of a pod of a pipeline. Raises InfrastructureError.

        Without an identity, no retry can find the run.
        """
        return identity_of(self.pod) if self.pod else None

    @cached_property
    def owner(self) -> str:
        """The hash that identifies the step. A label of the run contains this hash."""
        return secrets.token_hex(20) if self.identity is None else self.identity.owner

    def request(self, earlier: int = 0) -> RunRequest:
        """Returns the request to create the run. Raises BadInputError if the job is invalid or cannot be read.

        `earlier` is the number of starts of the earlier runs that the run replaces.

        If the Workflow and the run are in the same namespace, the Workflow becomes the Kubernetes owner of the run.
        """
        request, identity = self.job.request, self.identity
        job, owned_by = request.job, None
        record = RunRecord.of(self.given, job)
        labels, name = job.labels, f"{job.name}-{secrets.token_hex(3)}"
        if identity is not None:
            labels, name = {**labels, PIPELINE_RUN: identity.run_id}, identity.run_name(job.name)
            owned_by = identity.owned_by if identity.namespace == self.namespace else None
            if owned_by is None:
                log_lines("stepset: the run has no owner; deleting the pipeline run does not delete it")
        orphan, note = orphan_stop(self.given, identity, self.pod, self.namespace)
        log_lines(*(f"stepset: {each}" for each in (note,) if each))
        job = job.model_copy(
            update={"labels": labels, "annotations": {**job.annotations, RECORD: record.to_text()}},
        )
        owned = replace(request, job=job, name=name, owner=self.owner, owned_by=owned_by, orphan=orphan)
        return owned if identity is None else with_earlier_starts(with_counted_resumes(owned), earlier)

    def make(self, request: RunRequest) -> tuple[Manifest, tuple[str, ...]]:
        """Creates the run, or completes its creation. Returns the workload of the run, and notes for the log.

        Raises the errors of `KubernetesBackend.make`. Raises InfrastructureError if the account lacks a permission.
        """
        self.check_permissions()
        _check_claims(self.connection, self.namespace, self.given.get("task_config"), request.job.num_nodes)
        _check_queue(self.connection, self.namespace, request.job, self.target)
        backend = KubernetesBackend(self.connection, namespace=self.namespace, target=self.target, interface="kfp")
        submission, notes = backend.make(request)
        return submission.workload, notes

    def check_permissions(self) -> None:
        """Raises InfrastructureError if the account lacks a permission that the run needs. Raises BadInputError."""
        preflight(self.connection, self.namespace, grant_of(self.job.inputs.job, self.target, "kfp"))

    def report_missing_permissions(self) -> None:
        """Raises InfrastructureError with all permissions that the account lacks. Call this after a refused request.

        If the job is invalid or no permission is missing, the method returns.
        """
        with suppress(BadInputError):
            self.check_permissions()


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
    labels = job.labels if WORKLOAD_KINDS[target].own_queue else {**job.labels, **queue_labels(job)}
    if problems := connection.call(
        check_queue, connection.client, namespace, labels, grant_of(job, target, "kfp")
    ).problems:
        raise BadInputError(*problems)
