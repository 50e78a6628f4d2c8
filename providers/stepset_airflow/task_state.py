"""Queries the state of a task instance, and stores values in Airflow's task state store."""

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
"""The state of a task instance that no longer exists. Airflow itself has no such state.

A task instance no longer exists if a user deleted the task instance, the DAG run or the DAG. In a loop, a task instance
no longer exists if a user cleared an earlier iteration, because Airflow then creates the later iterations again.
"""
_ENDED = {"failed", "success", "skipped", "removed", "restarting", DELETED}
"""The states of a task that a user ended while the task was running or deferred (airflow.sdk.TaskInstanceState).

If the task has any other state, Airflow executes the task again. For example, the scheduler may have considered the
worker dead.
"""


class TaskStateStore(Protocol):
    """Airflow's task state store."""

    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any, *, retention: Any = None) -> None: ...


def set_forever(store: TaskStateStore, key: str, value: Any) -> None:
    """Stores a value until the task instance is deleted. By default, Airflow deletes values after some time."""
    from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # missing in the stubs of task SDK 1.3.2

    store.set(key, value, retention=NEVER_EXPIRE)


def state_of(ti: RuntimeTaskInstanceProtocol) -> str | None:
    """Returns the state of a task instance, or DELETED if the task instance no longer exists.

    Returns None if a user cleared the task instance, and Airflow has not scheduled the task instance again. The
    function blocks until Airflow answers, and raises the errors of the request.

    Args:
        ti: the task instance that this worker executes, or the task instance of the current trigger.
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
    # In a worker, the variable `state` may contain the state of a later iteration of the loop.
    return finished_state(ti, region) or ("restarting" if state == "restarting" else "running")


def is_ended(state: str | None) -> bool:
    """Returns whether `state` means that a user ended the task while it was running or deferred.

    If the result is True, no other process will take over the run of the task. Therefore the caller must end the run.

    If `state` is None, a user has cleared the task. The result is then False, because the next execution of the task
    ends the earlier run.
    """
    return state in _ENDED
