"""Checks the arguments of an operator's constructor and of `partial`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.airflow_internals import current_dag
from stepset_airflow.parsing.given import Given
from stepset_airflow.parsing.job import job_problems
from stepset_airflow.parsing.place import located, place_of
from stepset_airflow.parsing.templates import Templates
from stepset_airflow.parsing.unknown_parameters import unknown_parameters
from stepset_airflow.parsing.values import option_problems, sensor_problems

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


def check_names(
    operator: type, arguments: Collection[str], place: Mapping[str, Any], *, in_sensor: bool = False
) -> None:
    """Raises TypeError if there is an argument that no constructor of `operator` accepts.

    Args:
        operator: the operator's class.
        arguments: the names of the arguments.
        place: arguments that contain dag, task_group and task_id, which the error names.
        in_sensor: whether `operator` waits for runs instead of starting them.
    """
    if problems := unknown_parameters(operator, arguments, in_sensor=in_sensor):
        raise TypeError(located(problems, place_of(place)))


def check_values(
    operator: type[BaseOperator],
    values: Mapping[str, Any],
    place: Mapping[str, Any],
    *,
    sets_function: bool,
    complete: bool,
) -> None:
    """Raises ValueError if a known value of an operator's parameters is invalid.

    Args:
        operator: the operator's class.
        values: the arguments by parameter.
        place: arguments that contain dag, task_group and task_id.
        sets_function: whether the program is the function that the decorator decorates.
        complete: False if `expand` may add arguments.
    """
    dag = place.get("dag") or current_dag()
    given = Given(values, operator.template_fields, Templates.of(dag, operator.template_ext))
    folder = None if dag is None else Path(dag.folder)
    problems = [
        *option_problems(given),
        *job_problems(given, folder, sets_function=sets_function, complete=complete),
    ]
    if problems:
        raise ValueError(located(problems, place_of(place)))


def check_sensor(operator: type[BaseOperator], values: Mapping[str, Any], place: Mapping[str, Any]) -> None:
    """Raises ValueError if a known value of a sensor's parameters is invalid.

    Args:
        operator: the sensor's class.
        values: the arguments by parameter.
        place: arguments that contain dag, task_group and task_id.
    """
    dag = place.get("dag") or current_dag()
    given = Given(values, operator.template_fields, Templates.of(dag, operator.template_ext))
    if problems := list(sensor_problems(given)):
        raise ValueError(located(problems, place_of(place)))


def check_rendered(values: Mapping[str, Any], problems: Callable[[Given], Iterable[str]] = option_problems) -> None:
    """Raises AirflowFailException for invalid values that were not known when the DAG file was parsed.

    Args:
        values: the arguments by parameter, rendered.
        problems: yields the problems of the arguments.
    """
    if found := list(problems(Given(values, (), Templates()))):
        raise AirflowFailException("\n".join(found))
