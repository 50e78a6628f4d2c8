"""What has become of a task whose worker or trigger is told to end: did a user end it, or does a process go away?

Used by triggers.py and ending.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.identity import map_index_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

DELETED = "deleted"
"""No state of Airflow's: it answers that it has no such task instance. That was deleted, or its DAG run or DAG was."""
_ENDED = {"failed", "success", "skipped", "removed", "restarting", DELETED}
"""What a user's act makes of a task that runs or waits (airflow 3.3 TaskInstanceState). In all other states it goes on:
somebody has it executed, be it the scheduler that took its worker for dead."""


def state_of(ti: RuntimeTaskInstanceProtocol) -> str | None:
    """The state that a task instance is in, or DELETED; None where it was cleared and is not scheduled yet.

    Blocks until Airflow answers.

    Args:
        ti: the task instance, or the key of one.

    Raises:
        Exception: Airflow does not answer.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = map_index_of(ti)
    asked: dict[str, Any] = {"task_ids": [ti.task_id], "run_ids": [ti.run_id], "map_index": index}
    states: Mapping[str, Mapping[str, Any]] = RuntimeTaskInstance.get_task_states(dag_id=ti.dag_id, **asked)
    if not (mine := states.get(ti.run_id)):
        return DELETED
    (found,) = mine.values()
    return None if found is None else str(getattr(found, "value", found))


def is_ended(state: str | None) -> bool:
    """Whether a task in such a state has been ended while it ran or waited: nobody will look after its run.

    Args:
        state: as `state_of` gives it. A task that was cleared ends its earlier run when it is executed again.
    """
    return state in _ENDED
