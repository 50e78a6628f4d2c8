"""Columns of Airflow's tables that identify a task instance, in Airflow 3.3 and 3.4.

Airflow 3.4 stores each try of a task instance, and its queries return the last try only; XComs belong to a try. Each
iteration of a loop is a task instance of its own.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stepset_airflow.airflow_internals import Region, has_regions

NAMES = ("dag_id", "run_id", "task_id", "map_index")
"""Names of the columns that `columns` returns, as the page's data have them."""


def columns() -> tuple[Any, ...]:
    """Returns the columns of NAMES, and those of the region, of task instances."""
    from stepset_airflow.airflow_internals import TaskInstance

    stored = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id)
    if not has_regions():
        return (*stored, TaskInstance.map_index)
    return (*stored, _map_index(), TaskInstance.region_id, TaskInstance.region_index)


def identity(values: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the values of `columns` by their names; `region_id` and `region_index` only if there is a region."""
    found = dict(zip(NAMES, values, strict=False))
    region_id, region_index = values[len(NAMES) :] or (None, None)
    if region_id is not None and region_id.int:
        found |= {"region_id": str(region_id), "region_index": region_index}
    return found


def is_task_instance(key: tuple[str, str, str, int], region: Region | None) -> list[Any]:
    """Returns the conditions that select a task instance; without a region, all iterations of a task in a loop.

    Args:
        key: the values of NAMES.
        region: the task instance's region, as Airflow's UI names it; its id may be empty.
    """
    from stepset_airflow.airflow_internals import TaskInstance

    dag_id, run_id, task_id, map_index = key
    found = [TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id == task_id]
    if not has_regions():
        return [*found, TaskInstance.map_index == map_index]
    if region is not None:
        found.append(TaskInstance.region_index == region.index)
        if region.id:
            found.append(TaskInstance.region_id == UUID(region.id))
    return [*found, _map_index() == map_index]


def latest_first() -> list[Any]:
    """Returns the order in which the latest iteration of a task in a loop is the first one."""
    from stepset_airflow.airflow_internals import TaskInstance

    return [TaskInstance.region_index.desc(), TaskInstance.region_id.desc()] if has_regions() else []


def xcoms_of_task_instance() -> list[Any]:
    """Returns the conditions of a join of task instances with their XComs."""
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    if has_regions():
        return [XComModel.task_instance_id == TaskInstance.id]
    return [getattr(XComModel, name) == getattr(TaskInstance, name) for name in NAMES]


def stored_state_of_task_instance() -> list[Any]:
    """Returns the conditions of a join of task instances with the rows of the task state store."""
    from stepset_airflow.airflow_internals import TaskInstance
    from stepset_airflow.airflow_internals import TaskStateStoreModel as Stored

    names = ("dag_id", "run_id", "task_id", *(("region_id", "region_index") if has_regions() else ("map_index",)))
    return [getattr(Stored, name) == getattr(TaskInstance, name) for name in names]


def _map_index() -> Any:
    from stepset_airflow.airflow_internals import TaskInstance, public_map_index_expression

    return public_map_index_expression(TaskInstance)
