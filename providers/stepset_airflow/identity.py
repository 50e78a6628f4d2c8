"""The identity of a task instance: the name and owner of its run, and the number of its attempt.

Each iteration of a loop (Airflow 3.4) is a task instance. Its region, which the identity contains, stays the same when
the iteration is retried, deferred or cleared.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.airflow_internals import loop_region_of, safe_label_value, try_cleared_at

if TYPE_CHECKING:
    from stepset.backends.base import Backend


class TaskInstance(Protocol):
    """Attributes of an Airflow task instance that are used here; `loop_region_of` uses others of Airflow 3.4."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int | None
    try_number: int
    max_tries: int


def map_index_of(ti: Any) -> int:
    """Returns the map index of a task instance or its key; -1 if the task is not mapped (Airflow: -1 or None)."""
    return -1 if ti.map_index is None else int(ti.map_index)


def run_name(ti: TaskInstance) -> str:
    """Returns the name of a task instance's local run: the task's slug, a hash of the identity, the try number.

    The name is short enough for every target (`jobset_name_budget`), even with a generation appended.
    """
    return _name(ti, _digest(ti), ti.try_number)


def cluster_name(ti: TaskInstance, instance: str, generation: int) -> str:
    """Returns the name of a task instance's run on a cluster, which its tries share.

    `instance` names this Airflow deployment, because several may share a cluster; `generation` counts the task's runs.
    """
    return _name(ti, owner_of(ti, instance), generation)


def owner_of(ti: TaskInstance, instance: str) -> str:
    """Returns a hash by which a task instance recognises its run; a valid label value."""
    return _digest(ti, instance)[:40]


def labels_of(ti: TaskInstance) -> dict[str, str]:
    """Returns the labels by which users find a task instance's objects; KubernetesPodOperator sets the same labels.

    The try number is left out, because a run may belong to several tries.
    """
    values = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id}
    if (index := map_index_of(ti)) >= 0:
        values["map_index"] = str(index)
    if (region := loop_region_of(ti)) is not None:
        values |= {"region_id": region.id, "region_index": str(region.index)}
    return {name: safe_label_value(value) for name, value in values.items()}


def _name(ti: TaskInstance, digest: str, number: int) -> str:
    from stepset.spec.names import slug

    return f"{slug(ti.task_id, 26)}-{digest[:10]}-{number}"


def _digest(ti: TaskInstance, *more: str) -> str:
    region = loop_region_of(ti)
    where = () if region is None else (region.id, str(region.index))
    identity = "|".join((ti.dag_id, ti.run_id, ti.task_id, str(map_index_of(ti)), *where, *more))
    return hashlib.sha256(identity.encode()).hexdigest()


def epoch(ti: TaskInstance, retries: int) -> int:
    """Returns the try number at which a task instance was last cleared; 0 if it never was."""
    return try_cleared_at(ti.max_tries, retries)


def free_name(name: str, backend: Backend) -> str:
    """Returns `name`, with a number appended if completed runs already use it.

    Such runs exist if a user deleted the DAG run and Airflow created it again. Raises InfrastructureError if a run
    with such a name is still active.
    """
    from stepset.errors import InfrastructureError, RunNotFoundError

    generation, candidate = 1, name
    while True:
        try:
            status = backend.status(candidate)
        except RunNotFoundError:
            return candidate
        if not status.phase.final:
            raise InfrastructureError(
                f"run {candidate} of this task is still {status.phase.value.lower()}; wait for it,"
                f" or stop it with: stepset cancel {candidate}"
            )
        generation += 1
        candidate = f"{name}-{generation}"


def attempt(ti: TaskInstance, retries: int) -> int:
    """Returns the number of earlier tries since the task was last cleared."""
    return max(0, ti.try_number - 1 - epoch(ti, retries))
