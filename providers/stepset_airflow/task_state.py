"""The state of a task, and Airflow's task state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from stepset_airflow.airflow_internals import (
    finished_state,
    is_latest_try,
    is_supervisor_async,
    region_of,
    task_states,
)
from stepset_airflow.identity import map_index_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

DELETED = "deleted"
"""Not a state of Airflow: the task instance, its DAG run or its DAG was deleted, or an iteration of a loop was replaced
because a user cleared an earlier one."""
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

    Blocks until Airflow answers, and raises the request's errors. `ti` is the task instance of this worker, or of the
    current trigger.
    """
    region = region_of(ti)
    if region is not None and is_supervisor_async() and not is_latest_try(ti):
        return DELETED
    if not (mine := task_states(ti, map_index_of(ti)).get(ti.run_id)):
        return DELETED
    (found,) = mine.values()
    state = None if found is None else str(getattr(found, "value", found))
    if region is None or is_supervisor_async():
        return state
    # This may be the state of a later iteration of the loop.
    return finished_state(ti, region) or ("restarting" if state == "restarting" else "running")


def is_ended(state: str | None) -> bool:
    """Returns whether a task in this state was ended while it ran or waited, so that no process follows its run.

    False for None, a task that was cleared: its next execution ends its earlier run.
    """
    return state in _ENDED
