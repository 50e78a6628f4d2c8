"""Creates the OpenLineage datasets and the OpenLineage run facet of a run.

This module is imported only if OpenLineage is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attr
from airflow.sdk import Asset
from openlineage.client.event_v2 import Dataset
from openlineage.client.facet_v2 import RunFacet

from stepset.watch.present.places import place_words, ranks_named
from stepset_airflow.airflow_internals import openlineage_dataset

if TYPE_CHECKING:
    from stepset.run_status import RunStatus
    from stepset.spec import TrainingJob

_FILE = "file"


@attr.define
class TrainingRunFacet(RunFacet):
    """The run facet of a distributed training run. A field whose value is unknown is None.

    Args:
        framework: the kind of the framework, for example `torch` or `mpi`.
        numNodes: the number of nodes.
        worldSize: the number of ranks.
        attempt: the number of times that all ranks were restarted together.
        phase: the final phase of the run, for example Succeeded or Failed. None until the run has finished.
        metrics: the last values of the metrics that the ranks reported.
        failureKind: the kind of the failure.
        failureRank: the rank that failed first.
        exitCode: the exit code of the rank that failed first.
        hangKind: the class of the hang that preceded the failure, for example Missing.
        hangRanks: the ranks that blocked the others, for example `ranks 0-3, 6`.
        hangPlace: the file and the line at which the first of these ranks waited.
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
    hangKind: str | None = None  # noqa: N815
    hangRanks: str | None = None  # noqa: N815
    hangPlace: str | None = None  # noqa: N815


def training_facet(job: TrainingJob | None, status: RunStatus | None) -> TrainingRunFacet:
    """Returns the run facet of a run.

    Args:
        job: the job of the run. None if the job is invalid or incomplete.
        status: the final status of the run. None until the run has finished.
    """
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
        if status.hang is not None:
            groups = status.hang.guilty
            facet.hangKind = status.hang.kind.value
            facet.hangRanks = ranks_named([rank for group in groups for rank in group.ranks]) if groups else None
            facet.hangPlace = next(filter(None, (place_words(group.frame) for group in groups)), None)
    return facet


def datasets(entities: Iterable[Any]) -> list[Dataset]:
    """Returns the datasets of inlets or outlets, without duplicates.

    Args:
        entities: URIs, absolute paths, and objects of Airflow such as assets. None and assets without a location are
            skipped.
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
    """Returns the dataset of a URI or an absolute path. Returns None if `uri` is neither.

    For `s3://bucket/key`, the namespace of the dataset is `s3://bucket`, and the name of the dataset is `key`. For an
    absolute path, the namespace is `file`, and the name is the path. OpenLineage defines these conventions.
    """
    try:
        parts = urlsplit(uri)
        _ = parts.port  # raises ValueError if the port is invalid
    except ValueError:
        return None
    if parts.scheme == _FILE or (not parts.scheme and uri.startswith("/")):
        return Dataset(namespace=_FILE, name=parts.path)
    if not parts.scheme or not parts.hostname:
        return None
    # The host must not contain the user and the password of the URI.
    host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    return Dataset(namespace=f"{parts.scheme}://{host}", name=parts.path.lstrip("/"))
