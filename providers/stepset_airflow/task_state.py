"""The state of a task, and Airflow's task state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.airflow_internals import task_states
from stepset_airflow.identity import map_index_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

DELETED = "deleted"
"""Not a state of Airflow: the task instance, its DAG run or its DAG was deleted."""
_ENDED = {"failed", "success", "skipped", "removed", "restarting", DELETED}
"""States of a task that a user ended while it ran or waited (airflow.sdk.TaskInstanceState). In all other states the
task continues: Airflow executes it again, for example because the scheduler considers its worker dead."""


class TaskStateStore(Protocol):
    """Airflow's task state store."""

    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any, *, retention: Any = None) -> None: ...


def set_forever(store: TaskStateStore, key: str, value: Any) -> None:
    """Stores a value for as long as the task instance exists; by default Airflow deletes it after a while."""
    from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # missing in the stubs of task SDK 1.3.2

    store.set(key, value, retention=NEVER_EXPIRE)


def state_of(ti: RuntimeTaskInstanceProtocol) -> str | None:
    """Returns the state of a task instance, or DELETED; None if it was cleared and is not scheduled yet.

    Blocks until Airflow answers, and raises the request's errors. `ti` may also be the key of a task instance.
    """
    if not (mine := task_states(ti, map_index_of(ti)).get(ti.run_id)):
        return DELETED
    (found,) = mine.values()
    return None if found is None else str(getattr(found, "value", found))


def is_ended(state: str | None) -> bool:
    """Returns whether a task in this state was ended while it ran or waited, so that its run has no follower.

    The next execution of a cleared task ends its earlier run.
    """
    return state in _ENDED
