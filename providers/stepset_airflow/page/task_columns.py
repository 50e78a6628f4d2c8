"""SQL expressions for the columns that identify a task instance in the tables of Airflow 3.3 and 3.4.

Airflow 3.4 stores a row for each try of a task instance. Airflow adds a condition to queries of the table of task
instances, so that a query returns only the row of the last try. Each XCom belongs to one try. Each iteration of a loop
is a separate task instance.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stepset_airflow.airflow_internals import Region, has_regions

NAMES = ("dag_id", "run_id", "task_id", "map_index")
"""The names of the first columns that `columns` returns. The page's data contains these names."""


def columns() -> tuple[Any, ...]:
    """Returns the columns that identify a task instance in the table of task instances.

    The columns are those in NAMES. In Airflow 3.4, the columns `region_id` and `region_index` follow.
    """
    from stepset_airflow.airflow_internals import TaskInstance

    stored = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id)
    if not has_regions():
        return (*stored, TaskInstance.map_index)
    return (*stored, _map_index(), TaskInstance.region_id, TaskInstance.region_index)


def identity(values: tuple[Any, ...]) -> dict[str, Any]:
    """Returns a mapping from column names to values.

    `values` contains one value for each column that `columns` returns.

    The mapping contains `region_id` and `region_index` only if the task instance is in a region.
    """
    found = dict(zip(NAMES, values, strict=False))
    region_id, region_index = values[len(NAMES) :] or (None, None)
    if region_id is not None and region_id.int:
        found |= {"region_id": str(region_id), "region_index": region_index}
    return found


def is_task_instance(key: tuple[str, str, str, int], region: Region | None) -> list[Any]:
    """Returns the conditions that select a task instance.

    If `region` is None and the task is in a loop, the conditions select all iterations.

    Args:
        key: the values of the columns in NAMES.
        region: the region in the URL of Airflow's UI. The id of the region may be empty.
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


def is_mapped_task(key: tuple[str, str, str]) -> list[Any]:
    """Returns the conditions that select all instances of a mapped task.

    `key` contains the values of the first three columns in NAMES.
    """
    from stepset_airflow.airflow_internals import TaskInstance

    dag_id, run_id, task_id = key
    index = _map_index() if has_regions() else TaskInstance.map_index
    return [TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id == task_id, index >= 0]


def by_map_index() -> list[Any]:
    """Returns the expressions that sort the instances of a mapped task by map index.

    If the mapped task is in a loop, the instances are sorted by iteration, then by map index.
    """
    from stepset_airflow.airflow_internals import TaskInstance

    if not has_regions():
        return [TaskInstance.map_index]
    return [TaskInstance.region_index, TaskInstance.region_id, _map_index()]


def latest_first() -> list[Any]:
    """Returns the expressions that sort the iterations of a task in a loop. The latest iteration is the first."""
    from stepset_airflow.airflow_internals import TaskInstance

    return [TaskInstance.region_index.desc(), TaskInstance.region_id.desc()] if has_regions() else []


def xcoms_of_task_instance() -> list[Any]:
    """Returns the conditions that join the table of task instances with the table of XComs."""
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    if has_regions():
        return [XComModel.task_instance_id == TaskInstance.id]
    return [getattr(XComModel, name) == getattr(TaskInstance, name) for name in NAMES]


def stored_state_of_task_instance() -> list[Any]:
    """Returns the conditions that join the table of task instances with the table of the task state store."""
    from stepset_airflow.airflow_internals import TaskInstance
    from stepset_airflow.airflow_internals import TaskStateStoreModel as Stored

    names = ("dag_id", "run_id", "task_id", *(("region_id", "region_index") if has_regions() else ("map_index",)))
    return [getattr(Stored, name) == getattr(TaskInstance, name) for name in names]


def _map_index() -> Any:
    from stepset_airflow.airflow_internals import TaskInstance, public_map_index_expression

    return public_map_index_expression(TaskInstance)
