"""The arguments of an operator when a DAG file is parsed. Some values are unknown, and the task may not exist yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stepset_airflow.airflow_internals import current_dag, current_task_group
from stepset_airflow.parsing.templates import Templates, is_of_a_task


@dataclass(frozen=True)
class Given:
    """The arguments of an operator. A missing argument may still be added, for example by `expand`.

    Args:
        values: the arguments by their names.
        templated: the names of the parameters that Airflow renders.
        templates: detects values that Airflow renders.
    """

    values: Mapping[str, Any]
    templated: Collection[str]
    templates: Templates

    def is_known(self, name: str) -> bool:
        """Returns whether the value of a parameter is known when the DAG file is parsed.

        The value is unknown if the argument is missing, if the argument is the result of another task, or if Airflow
        renders the argument.
        """
        if name not in self.values or is_of_a_task(value := self.values[name]):
            return False
        return name not in self.templated or not self.templates.are_in(value)

    def value(self, name: str) -> Any:
        """Returns the value of a parameter, or None if the value is unknown."""
        return self.values[name] if self.is_known(name) else None

    def without_misplaced_templates(self) -> tuple[list[str], Given]:
        """Returns two values: the problems, and the arguments without the parameters that have a problem.

        There is a problem for each parameter that contains a template but is not templated.
        """
        values = self.values
        names = [name for name in values if name not in self.templated and self.templates.start_in(values[name])]
        rest = {name: value for name, value in values.items() if name not in names}
        problems = [f"{name}: this parameter is not templated; give a value without a template" for name in names]
        return problems, Given(rest, self.templated, self.templates)

    def misplaced_results(self) -> list[str]:
        """Returns a problem for each parameter that contains the result of another task but is not templated."""
        names = [name for name, value in self.values.items() if name not in self.templated and is_of_a_task(value)]
        return [f"{name}: the result of another task is possible in templated parameters only" for name in names]


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
