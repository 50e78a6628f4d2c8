"""The identity of a task instance: the name of its run, and which attempt of the same work it is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.airflow_internals import safe_label_value, try_cleared_at

if TYPE_CHECKING:
    from stepset.backends.base import Backend


class TaskInstance(Protocol):
    """The attributes used of an Airflow task instance."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int | None
    try_number: int
    max_tries: int


def map_index_of(ti: Any) -> int:
    """The map index of a task instance or of its key; -1 if not mapped, for which Airflow has two values."""
    return -1 if ti.map_index is None else int(ti.map_index)


def run_name(ti: TaskInstance) -> str:
    """The name of a task instance's local run: its task's slug, a hash of its identity, its try.

    Short enough for every target's budget (`jobset_name_budget`), with a generation behind it.
    """
    return _name(ti, _digest(ti), ti.try_number)


def cluster_name(ti: TaskInstance, instance: str, generation: int) -> str:
    """The name of a task instance's run on a cluster, which tries share.

    `instance` names this Airflow, because several may share a cluster; `generation` is how many runs the task has had.
    """
    return _name(ti, owner_of(ti, instance), generation)


def owner_of(ti: TaskInstance, instance: str) -> str:
    """A hash by which a task instance recognises its run; a label's value."""
    return _digest(ti, instance)[:40]


def labels_of(ti: TaskInstance) -> dict[str, str]:
    """Labels by which users find a task instance's objects, the same as KubernetesPodOperator's.

    Without the try number: a run may belong to several tries.
    """
    about = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id}
    if (index := map_index_of(ti)) >= 0:
        about["map_index"] = str(index)
    return {name: safe_label_value(value) for name, value in about.items()}


def _name(ti: TaskInstance, digest: str, number: int) -> str:
    from stepset.spec.names import slug

    return f"{slug(ti.task_id, 26)}-{digest[:10]}-{number}"


def _digest(ti: TaskInstance, *more: str) -> str:
    identity = "|".join((ti.dag_id, ti.run_id, ti.task_id, str(map_index_of(ti)), *more))
    return hashlib.sha256(identity.encode()).hexdigest()


def epoch(ti: TaskInstance, retries: int) -> int:
    """The try number at which a task instance was cleared last; 0: never (see `attempt`)."""
    return try_cleared_at(ti.max_tries, retries)


def free_name(name: str, backend: Backend) -> str:
    """Returns `name`, or its next generation if a finished run has it; raises InfrastructureError if it is not over.

    The same task instance exists again when a user deletes a DAG run and Airflow creates it again.
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
                f"run {candidate} of this very task is still {status.phase.value.lower()}; wait for it,"
                f" or stop it with: stepset cancel {candidate}"
            )
        generation += 1
        candidate = f"{name}-{generation}"


def attempt(ti: TaskInstance, retries: int) -> int:
    """How often the same work was tried before: retries count, a cleared task starts at 0 again.

    A cleared task has a later epoch, which distinguishes the two.
    """
    return max(0, ti.try_number - 1 - epoch(ti, retries))
