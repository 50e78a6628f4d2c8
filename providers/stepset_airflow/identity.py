"""Derives the name, the owner and the attempt number of a run from the task instance of the run.

In Airflow 3.4, each iteration of a loop is a separate task instance, and the region is part of the identity of this
task instance. The region stays the same when the iteration is retried, deferred or cleared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.airflow_internals import loop_region_of, try_cleared_at

if TYPE_CHECKING:
    from stepset.backends.base import Backend
    from stepset.run_status import RunStatus


class TaskInstance(Protocol):
    """The attributes of an Airflow task instance that this module uses.

    In Airflow 3.4, the function `loop_region_of` uses further attributes.
    """

    dag_id: str
    task_id: str
    run_id: str
    map_index: int | None
    try_number: int
    max_tries: int


def map_index_of(ti: Any) -> int:
    """Returns the map index of a task instance, or -1 if the task is not mapped.

    `ti` is the task instance or the key of the task instance.
    """
    return -1 if ti.map_index is None else int(ti.map_index)


def run_name(ti: TaskInstance) -> str:
    """Returns the name of the local run of a task instance.

    The name consists of a slug of the task's id, a hash of the task instance's identity, and the try number. The name
    is short enough for every target (`jobset_name_budget`), even if `free_name` appends a number.
    """
    return _name(ti, _digest(ti), ti.try_number)


def earlier_run(ti: TaskInstance, backend: Backend) -> RunStatus | None:
    """Returns the status of the local run of the previous try, or None if this machine has no such run."""
    from stepset.errors import RunNotFoundError

    found = None
    with suppress(RunNotFoundError):
        for name in _names(_name(ti, _digest(ti), ti.try_number - 1)):
            found = backend.status(name)
    return found


def cluster_name(ti: TaskInstance, instance: str, generation: int) -> str:
    """Returns the name of the run of a task instance on a cluster. The try number is not part of the name.

    Args:
        instance: the name of this Airflow deployment. The name distinguishes deployments that share a cluster.
        generation: the number of runs that the task instance has had, including this run.
    """
    return _name(ti, owner_of(ti, instance), generation)


def owner_of(ti: TaskInstance, instance: str) -> str:
    """Returns a hash that identifies the task instance to which a run belongs. The hash is a valid label value."""
    return _digest(ti, instance)[:40]


@dataclass(frozen=True)
class TaskIdentity:
    """The identity of a task instance, from which the names of its runs on a cluster are derived.

    Args:
        ti: the task instance.
        instance: the name of this Airflow deployment.
        retries: the number of retries of the task.
    """

    ti: TaskInstance
    instance: str
    retries: int

    @property
    def owner(self) -> str:
        """The hash that `owner_of` returns."""
        return owner_of(self.ti, self.instance)

    @property
    def epoch(self) -> int:
        """The try number that `epoch` returns."""
        return epoch(self.ti, self.retries)

    def run_name(self, generation: int) -> str:
        """Returns the name that `cluster_name` returns."""
        return cluster_name(self.ti, self.instance, generation)


def labels_of(ti: TaskInstance) -> dict[str, str]:
    """Returns labels with which users can find the Kubernetes objects of a task instance.

    KubernetesPodOperator also sets these labels. There is no label for the try number, because several tries may use
    the same run.
    """
    values = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, "map_index": map_index_of(ti)}
    if (region := loop_region_of(ti)) is not None:
        values |= {"region_id": region.id, "region_index": region.index}
    return labels_of_identity(values)


def labels_of_identity(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the labels of a task instance that `labels_of` returns.

    Args:
        values: the columns that identify the task instance, by their names (`page.task_columns.identity`).
    """
    from stepset.safe_names import label_value

    present = {name: value for name, value in values.items() if name != "map_index" or value >= 0}
    return {name: label_value(str(value)) for name, value in present.items()}


def _name(ti: TaskInstance, digest: str, number: int) -> str:
    from stepset.safe_names import slug

    return f"{slug(ti.task_id, 26)}-{digest[:10]}-{number}"


def _digest(ti: TaskInstance, *more: str) -> str:
    region = loop_region_of(ti)
    where = () if region is None else (region.id, str(region.index))
    identity = "|".join((ti.dag_id, ti.run_id, ti.task_id, str(map_index_of(ti)), *where, *more))
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


def epoch(ti: TaskInstance, retries: int) -> int:
    """Returns the try number at which a task instance was last cleared. Returns 0 if the task was never cleared."""
    return try_cleared_at(ti.max_tries, retries)


def free_name(name: str, backend: Backend) -> str:
    """Returns `name`, or `name` with a number if a completed run is already called `name`.

    A completed run has the name if a user deleted the DAG run, and Airflow created the DAG run again.

    Raises InfrastructureError if an active run already has the name.
    """
    from stepset.errors import InfrastructureError, RunNotFoundError

    def is_free(candidate: str) -> bool:
        try:
            status = backend.status(candidate)
        except RunNotFoundError:
            return True
        if not status.phase.final:
            raise InfrastructureError(
                f"run {candidate} of this task is still {status.phase.value.lower()}; wait for it,"
                f" or stop it with: stepset cancel {candidate}"
            )
        return False

    return next(filter(is_free, _names(name)))


def _names(name: str) -> Iterator[str]:
    """Yields the names of the first run called `name`, of the second run, and so on."""
    yield name
    yield from (f"{name}-{generation}" for generation in count(2))


def attempt(ti: TaskInstance, retries: int) -> int:
    """Returns the number of earlier tries since the task was last cleared."""
    return max(0, ti.try_number - 1 - epoch(ti, retries))
