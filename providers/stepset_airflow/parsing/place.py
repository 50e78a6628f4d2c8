"""Determines the names of the DAG and the task for error messages about arguments. The task may not exist yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepset_airflow.airflow_internals import current_dag, current_task_group


def place_of(arguments: Mapping[str, Any]) -> str:
    """Returns `DAG 'name', task 'name'` for the arguments of a constructor. Without a DAG, returns `task 'name'`."""
    task_id = arguments.get("task_id")
    dag = arguments.get("dag") or current_dag()
    if dag is None:
        return f"task {task_id!r}"
    group = arguments.get("task_group") or current_task_group(dag)
    return f"DAG {dag.dag_id!r}, task {group.child_id(task_id) if group is not None and task_id else task_id!r}"


def located(problems: Iterable[str], place: str) -> str:
    """Returns one line for each problem. Each line starts with `place`."""
    return "\n".join(f"{place}: {' '.join(problem.splitlines())}" for problem in problems)
