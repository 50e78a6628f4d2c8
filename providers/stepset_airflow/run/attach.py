"""Finds the run of a task on the cluster by the record of the run.

The functions of this module never read the job, because the job may have changed since the run was created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepset_airflow.run.clusters import Clusters
from stepset_airflow.run_record import RunRecord

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


def find(clusters: Clusters, record: RunRecord, owner: str) -> Manifest | None:
    """Returns the workload of a record, or None if the workload does not exist.

    If the record has no uid, a workload with the name in the record may belong to another owner. The function does not
    return such a workload.

    Args:
        clusters: the clusters of the task.
        owner: the hash that identifies the task instance.
    """
    existing = clusters.backend(record).workload(record.name, record.uid)
    return existing if existing is not None and (record.uid or is_of(existing, owner)) else None


def attach(clusters: Clusters, record: RunRecord, owner: str) -> AttachedRun | None:
    """Returns the run of a record. Returns None if the run was not created, or if its creation was interrupted."""
    existing = find(clusters, record, owner)
    if record.uid:
        return AttachedRun(record, existing, found=True)
    if existing is None or not _is_complete(existing):
        return None
    return AttachedRun(replace(record, uid=str(existing["metadata"]["uid"])), existing, found=True)


def unrecorded_success(clusters: Clusters, record: RunRecord, epoch: int) -> AttachedRun | None:
    """Returns the run of a record with the given epoch if the run has succeeded. Otherwise, returns None."""
    from stepset.run_status import Phase

    backend = clusters.backend(record)
    workload = backend.workload(record.name, record.uid)
    if workload is None or backend.read(workload).phase is not Phase.SUCCEEDED:
        return None
    return AttachedRun(replace(record, epoch=epoch), workload, found=True)


def is_active(clusters: Clusters, record: RunRecord, workload: Manifest) -> bool:
    """Returns whether a run has not finished, or is still being deleted."""
    return (
        bool(workload["metadata"].get("deletionTimestamp")) or not clusters.backend(record).read(workload).phase.final
    )


def is_of(workload: Manifest, owner: str) -> bool:
    """Returns whether a workload belongs to the task instance that the hash `owner` identifies."""
    from stepset.targets.metadata import OWNER_HASH

    return (workload["metadata"].get("labels") or {}).get(OWNER_HASH) == owner


def _is_complete(workload: Manifest) -> bool:
    """Returns whether all objects of a run were created, and the run is not being deleted."""
    from stepset.targets.metadata import SUBMISSION

    metadata = workload["metadata"]
    return SUBMISSION not in (metadata.get("labels") or {}) and not metadata.get("deletionTimestamp")
