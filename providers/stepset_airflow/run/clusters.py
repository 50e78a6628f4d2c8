"""Finds a task's runs on their clusters by the records of the runs.

This module never reads the job, because the job may have changed since the run was created. The backends of the runs
apply the `pod_mutation_hook` of the Airflow deployment to the pod templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepset_airflow.airflow_internals import call_pod_mutation_hook, pod_of
from stepset_airflow.hooks.cluster import ClusterAccess, connect

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.portal import Connection
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset_airflow.run_record import FollowSettings, RunRecord

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class AttachedRun:
    """The run of a task.

    Args:
        record: the record of the run.
        workload: the workload of the run. None if the workload no longer exists or is not needed.
        notes: notes about the run for the task log.
        found: whether an earlier execution of the task created the run.
    """

    record: RunRecord
    workload: Manifest | None = None
    notes: tuple[str, ...] = ()
    found: bool = False


class Clusters:
    """Connects to the clusters of a task's runs. Each connection is opened once.

    The argument `owner` of the methods is the hash that identifies the task instance.
    """

    def __init__(self) -> None:
        self._connections: dict[ClusterAccess, Connection] = {}
        self._backends: dict[tuple[str, FollowSettings], KubernetesBackend] = {}

    def namespace(self, access: ClusterAccess) -> str:
        """Returns the namespace of new runs. Reads Airflow's connection, which may raise BadInputError."""
        return str(self._connection(access).namespace)

    def backend(self, record: RunRecord) -> KubernetesBackend:
        """Returns the backend for the run of a record."""
        from stepset.backends.kubernetes.backend import KubernetesBackend
        from stepset.watch.cluster.follow_policy import Timeouts

        key = record.namespace, (follow := record.follow)
        if key not in self._backends:
            self._backends[key] = KubernetesBackend(
                self._connection(follow.access),
                namespace=record.namespace,
                target=follow.target,
                sources=None if follow.sources is None else frozenset(follow.sources),
                timeouts=Timeouts(follow.admission_timeout, follow.startup_timeout, quiet=follow.quiet_after),
                change_pod=mutate_pod,
                interface="airflow",
            )
        return self._backends[key]

    def find(self, record: RunRecord, owner: str) -> Manifest | None:
        """Returns the workload of a record, or None if the workload does not exist.

        If the record has no uid, a workload with the name in the record may belong to another owner. The method does
        not return such a workload.
        """
        existing = self.backend(record).workload(record.name, record.uid)
        return existing if existing is not None and (record.uid or is_of(existing, owner)) else None

    def attach(self, record: RunRecord, owner: str) -> AttachedRun | None:
        """Returns the run of a record. Returns None if the run was not created, or if its creation was interrupted."""
        existing = self.find(record, owner)
        if record.uid:
            return AttachedRun(record, existing, found=True)
        if existing is None or not _is_complete(existing):
            return None
        return AttachedRun(replace(record, uid=str(existing["metadata"]["uid"])), existing, found=True)

    def succeeded(self, record: RunRecord, epoch: int) -> AttachedRun | None:
        """Returns the run of a record with the given epoch if the run has succeeded. Otherwise, returns None."""
        from stepset.run_status import Phase

        workload = self.backend(record).workload(record.name, record.uid)
        if workload is None or self.backend(record).read(workload).phase is not Phase.SUCCEEDED:
            return None
        return AttachedRun(replace(record, epoch=epoch), workload, found=True)

    def is_active(self, record: RunRecord, workload: Manifest) -> bool:
        """Returns whether a run has not finished, or is still being deleted."""
        deleting = bool(workload["metadata"].get("deletionTimestamp"))
        return deleting or not self.backend(record).read(workload).phase.final

    def _connection(self, access: ClusterAccess) -> Connection:
        if access not in self._connections:
            self._connections[access] = connect(access)
        return self._connections[access]


def is_of(workload: Manifest, owner: str) -> bool:
    """Returns whether a workload belongs to the task instance that the hash `owner` identifies."""
    from stepset.targets.metadata import OWNER_HASH

    return (workload["metadata"].get("labels") or {}).get(OWNER_HASH) == owner


def _is_complete(workload: Manifest) -> bool:
    """Returns whether all objects of a run were created, and the run is not being deleted."""
    from stepset.targets.metadata import SUBMISSION

    metadata = workload["metadata"]
    return SUBMISSION not in (metadata.get("labels") or {}) and not metadata.get("deletionTimestamp")


def mutate_pod(template: Manifest) -> Manifest:
    """Returns a pod template (metadata and spec) with the changes of the deployment's `pod_mutation_hook`.

    Airflow calls this hook for every pod that Airflow creates, but the controllers of the cluster create the pods of a
    run. Therefore stepset calls the hook for each pod template before the run is submitted. The hook receives the
    template as a V1Pod without a name.

    If the hook changes nothing, the function returns the same object. A changed template contains only fields that the
    installed kubernetes package supports.

    If the hook raises an exception to reject the pod, the function raises this exception.
    """
    from kubernetes.client import ApiClient

    plain = ApiClient().sanitize_for_serialization
    pod = pod_of({"apiVersion": "v1", "kind": "Pod", **template})
    before = plain(pod)
    call_pod_mutation_hook(pod)
    after = plain(pod)
    return template if after == before else {"metadata": after.get("metadata", {}), "spec": after["spec"]}
