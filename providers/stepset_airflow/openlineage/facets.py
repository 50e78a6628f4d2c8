"""OpenLineage's datasets and run facet of a training; imported only if OpenLineage is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attr
from airflow.sdk import Asset
from openlineage.client.event_v2 import Dataset
from openlineage.client.facet_v2 import RunFacet

from stepset_airflow.airflow_internals import openlineage_dataset

if TYPE_CHECKING:
    from stepset.run_status import RunStatus
    from stepset.spec import TrainingJob

_FILE = "file"


@attr.define
class TrainingRunFacet(RunFacet):
    """A distributed training run; unknown values are None.

    Args:
        framework: torch, mpi, ...
        numNodes: pods in the training world.
        worldSize: ranks.
        attempt: restarts of the whole gang.
        phase: Succeeded or Failed; None until the run is over.
        metrics: the last values that the ranks reported.
        failureKind: kind of the failure.
        failureRank, exitCode: the rank that failed first, and its exit code.
    """

    job: str | None = None
    run: str | None = None
    framework: str | None = None
    numNodes: int | None = None  # noqa: N815  # OpenLineage's spelling
    worldSize: int | None = None  # noqa: N815
    attempt: int | None = None
    phase: str | None = None
    metrics: dict[str, float] = attr.field(factory=dict)
    failureKind: str | None = None  # noqa: N815
    failureRank: int | None = None  # noqa: N815
    exitCode: int | None = None  # noqa: N815


def training_facet(job: TrainingJob | None, status: RunStatus | None) -> TrainingRunFacet:
    """Returns the run facet; `job` is None if the job is invalid or incomplete, `status` is None until the run ends."""
    facet = TrainingRunFacet()
    if job is not None:
        facet.job, facet.framework, facet.numNodes = job.name, job.framework.kind, job.num_nodes
    if status is not None:
        facet.job, facet.run, facet.phase = status.job, status.name, status.phase.value
        facet.attempt, facet.worldSize = status.attempt, status.world_size
        if status.progress is not None:
            facet.metrics = dict(status.progress.metrics)
        if status.failure is not None:
            facet.failureKind = status.failure.kind.value
            facet.failureRank, facet.exitCode = status.failure.rank, status.failure.exit_code
    return facet


def datasets(entities: Iterable[Any]) -> list[Dataset]:
    """Returns the datasets of inlets and outlets (Airflow's objects, URIs, absolute paths), each once.

    Skips None, and assets without a location.
    """
    found: dict[tuple[str, str], Dataset] = {}
    for entity in entities:
        dataset = _of_uri(entity) if isinstance(entity, str) else openlineage_dataset(entity)
        if dataset is None and isinstance(entity, Asset):
            dataset = _of_uri(entity.uri)
        if dataset is not None:
            found.setdefault((dataset.namespace, dataset.name), dataset)
    return list(found.values())


def _of_uri(uri: str) -> Dataset | None:
    """Returns the dataset of a URI in OpenLineage's naming: `s3://bucket` and `key`, or `file` and the path."""
    parts = urlsplit(uri)
    if parts.scheme == _FILE or (not parts.scheme and uri.startswith("/")):
        return Dataset(namespace=_FILE, name=parts.path)
    if not parts.scheme or not parts.hostname:
        return None
    # Without user and password.
    host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    return Dataset(namespace=f"{parts.scheme}://{host}", name=parts.path.lstrip("/"))
