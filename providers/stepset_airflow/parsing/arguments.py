"""Checks the arguments of an operator's constructor."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_parsing_context
from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.airflow_internals import current_dag, parsed_file
from stepset_airflow.parsing.given import Given, located, place_of
from stepset_airflow.parsing.job import job_problems, missing_parts
from stepset_airflow.parsing.templates import Templates, known_parts, syntax_problems
from stepset_airflow.parsing.unknown_parameters import (
    PROGRAMS,
    closest,
    parameters_of,
    place_of_code_argument,
    problem_of,
    unknown_parameters,
)
from stepset_airflow.parsing.values import option_problems, sensor_problems

if TYPE_CHECKING:
    from airflow.sdk import DAG, BaseOperator


def check_names(
    operator: type,
    arguments: Collection[str],
    place: Mapping[str, Any],
    *,
    in_sensor: bool = False,
    otherwise: str = "",
) -> None:
    """Raises TypeError if there is an argument that no constructor of `operator` accepts.

    Args:
        operator: the class of the operator.
        place: the arguments dag, task_group and task_id. The error message names the DAG and the task.
        in_sensor: whether `operator` is DistributedTrainSensor. The error message then describes parameters of the
            sensor.
        otherwise: the hint for an argument that is not similar to any parameter.
    """
    hint = {"otherwise": otherwise} if otherwise else {}
    if problems := unknown_parameters(operator, arguments, in_sensor=in_sensor, **hint):
        raise TypeError(located(problems, place_of(place)))


def check_values(
    operator: type[BaseOperator],
    values: Mapping[str, Any],
    unknown: Mapping[str, Any],
    place: Mapping[str, Any],
    *,
    sets_function: bool,
) -> None:
    """Raises one error for all unknown arguments and all invalid values of an operator's parameters.

    If Airflow parses the DAG file to execute a task, the values are not checked. The task may follow a run that exists,
    and such a task does not need the job, its files or the other tasks of the DAG file. A task that creates a run
    checks the values in `DistributedTrainOperator.prepare`. An argument that the program probably cannot read causes a
    warning.

    Args:
        operator: the class of the operator.
        values: the arguments and the default values of the operator's parameters, by their names. A parameter that is
            not contained is not checked, because it may still get an argument from `expand`.
        unknown: the arguments that no constructor accepts. If such an argument can be converted to a parameter of the
            operator, the converted value is also checked.
        place: the other arguments of the constructor. The error message names the DAG and the task.
        sets_function: whether the program is the function that the decorator decorates.

    Raises:
        TypeError: there is an unknown argument.
        ValueError: an argument is invalid, and its value is known when the DAG file is parsed.
    """
    dag = place.get("dag") or current_dag()
    templates = Templates.of(dag, operator.template_ext, place.get("render_template_as_native_obj"))
    file = parsed_file() or _executed_file(dag)
    # The DAG may be created in a module that the DAG file imports. In this case, `dag.folder` is the folder of the
    # imported module while Airflow parses the DAG file.
    folder = file.parent if file is not None else None if dag is None else Path(dag.folder)

    def problems_of(arguments: Mapping[str, Any]) -> list[str]:
        misplaced, given = Given(arguments, operator.template_fields, templates).without_misplaced_templates()
        found = job_problems(given, folder, sets_function=sets_function)
        missing = () if file is None else missing_parts(given, file.parent)
        return [*misplaced, *syntax_problems(given.values, templates, dag), *option_problems(given), *found, *missing]

    if unknown:
        problems = _corrections(operator, values, unknown, problems_of, sets_function=sets_function)
        # `_corrections` checks the corrected values. The user may keep the original values, so these are checked, too.
        _, own = Given(values, operator.template_fields, templates).without_misplaced_templates()
        raise TypeError(located(dict.fromkeys([*problems, *option_problems(own)]), place_of(place)))
    if get_parsing_context().task_id is None and (problems := problems_of(values)):
        raise ValueError(located(problems, place_of(place)))
    if get_parsing_context().task_id is None and isinstance(args := values.get("args"), (list, tuple)):
        from stepset.plan.argument_notes import argument_notes

        for note in argument_notes(args):
            warnings.warn(located([note], place_of(place)), stacklevel=2)


def _executed_file(dag: DAG | None) -> Path | None:
    """Returns the DAG file if Python executes it, as in `python dag_file.py`, and if the file itself creates `dag`."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if dag is None or main is None or Path(dag.fileloc).resolve() != Path(main).resolve():
        return None
    return Path(main)


def _corrections(
    operator: type[BaseOperator],
    values: Mapping[str, Any],
    unknown: Mapping[str, Any],
    problems_of: Callable[[Mapping[str, Any]], list[str]],
    *,
    sets_function: bool,
) -> list[str]:
    """Returns one line for each unknown argument, and one line for each problem of the corrected arguments."""
    from stepset_airflow.parsing.corrections import Corrections
    from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS

    def problems_with(corrections: Corrections) -> list[str]:
        arguments = corrections.arguments()
        meant = {PROGRAMS.get(name) or closest(name, known) for name in misspelled}
        return problems_of({name: value for name, value in arguments.items() if value is not None or name not in meant})

    known = parameters_of(operator)
    foreign = {name: value for name, value in unknown.items() if name in KPO_PARAMETERS}
    misspelled = [name for name in unknown if name not in foreign]
    corrections = Corrections.of(foreign, values, problems_with)
    hints = {name: place_of_code_argument(name, unknown[name], sets_function=sets_function) for name in misspelled}
    return [
        *(problem_of(name, known, otherwise=hint) for name, hint in hints.items()),
        *corrections.lines(),
        *problems_with(corrections),
    ]


def check_function(function: Callable[..., Any], place: Mapping[str, Any]) -> None:
    """Raises ValueError if the source of a decorated function is not a program that the ranks can run.

    The source must be readable. The function must be defined with `def`, and must not use names of the DAG file, have
    decorators below `@task.distributed_train`, be an async function or be a generator. The error has one line for each
    problem, and a line for the parameters that `check_context_keys` would check next.

    Args:
        place: the arguments dag, task_group and task_id. The error message names the DAG, the task and the line of the
            function.
    """
    import inspect

    from stepset.errors import BadInputError
    from stepset.functions.definition import source_of
    from stepset.functions.source import check_captured, check_decorators, check_kind
    from stepset.functions.used_names import captured_names

    where = place_of(place) + _line_of(function)
    try:
        source = source_of(function)
    except BadInputError as error:
        raise ValueError(located(str(error).splitlines(), where)) from None
    checks: tuple[Callable[[], None], ...] = (
        lambda: check_decorators(function, "distributed_train", f"remove it, or apply it inside {function.__name__}"),
        lambda: check_kind(inspect.unwrap(function)),  # decorators are not shipped
        lambda: check_captured(function, captured_names(source), "or pass {them} as arguments of the task"),
    )
    problems: list[str] = []
    for check in checks:
        try:
            check()
        except BadInputError as error:
            problems += str(error).splitlines()
    if not problems:
        return
    if keys := _context_keys(function, (), {}, mapped=False):
        problems.append(
            f"function: the ranks do not have Airflow's context; if a call of {function.__name__} has no argument for"
            f" {', '.join(keys)}, add one"
        )
    raise ValueError(located(dict.fromkeys(problems), where)) from None


def _line_of(function: Callable[..., Any]) -> str:
    """Returns `, FILE:LINE`, the first line of a function. Returns "" for other objects that can be called."""
    import inspect

    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f", {Path(code.co_filename).name}:{code.co_firstlineno}"


def check_json(args: Collection[Any], kwargs: Mapping[str, Any], place: Mapping[str, Any]) -> None:
    """Raises ValueError if an argument in the call of a decorated function is not JSON data.

    The results of other tasks are not checked.

    Args:
        place: the arguments dag, task_group and task_id. The error message names the DAG and the task.
    """
    from stepset.errors import BadInputError
    from stepset.functions.program import json_arguments

    try:
        json_arguments([known_parts(each) for each in args], {name: known_parts(kwargs[name]) for name in kwargs})
    except BadInputError as error:
        raise ValueError(located([str(error)], place_of(place))) from None


def check_context_keys(
    function: Callable[..., Any],
    args: Collection[Any],
    kwargs: Mapping[str, Any],
    place: Mapping[str, Any],
    *,
    mapped: bool = False,
) -> None:
    """Raises ValueError if a decorated function expects values of Airflow's context, which the ranks do not have.

    Airflow itself sets a missing argument to None if the parameter has the name of a context key. A parameter whose
    default is another value is not an error.

    Args:
        args, kwargs: the arguments of the call.
        place: the arguments dag, task_group and task_id. The error message names the DAG and the task.
        mapped: whether the task is mapped. Airflow does not accept context keys in `partial` and `expand`. Therefore a
            parameter whose default is None is not an error either.
    """
    if keys := _context_keys(function, args, kwargs, mapped=mapped):
        name = function.__name__
        remedy = f'pass the values that it needs as arguments, such as {name}(run_id="{{{{ run_id }}}}")'
        if mapped:
            remedy = f"rename the parameter{'s' if len(keys) > 1 else ''}"
        found = f"function: {name} expects {', '.join(keys)} of Airflow's context, which the ranks do not have"
        raise ValueError(located([f"{found}; {remedy}"], place_of(place)))


def _context_keys(
    function: Callable[..., Any], args: Collection[Any], kwargs: Mapping[str, Any], *, mapped: bool
) -> list[str]:
    """Returns the parameters that need an argument for the reason that `check_context_keys` describes."""
    from inspect import Parameter, signature

    from stepset_airflow.airflow_internals import KNOWN_CONTEXT_KEYS

    parameters = signature(function)
    given = parameters.bind_partial(*args, **kwargs).arguments
    return [
        name
        for name, each in parameters.parameters.items()
        if name in KNOWN_CONTEXT_KEYS
        and name not in given
        and (each.default is Parameter.empty or (each.default is None and not mapped))
    ]


def check_sensor(
    operator: type[BaseOperator], values: Mapping[str, Any], unknown: Collection[str], place: Mapping[str, Any]
) -> None:
    """Raises one error for all unknown arguments and all invalid values of a sensor's parameters.

    Args:
        operator: the class of the sensor.
        values: the arguments that are parameters of the sensor, by their names.
        unknown: the names of the arguments that no constructor accepts.
        place: the arguments dag, task_group and task_id. The error message names the DAG and the task.

    Raises:
        TypeError: there is an unknown argument.
        ValueError: an argument is invalid, and its value is known when the DAG file is parsed.
    """
    dag = place.get("dag") or current_dag()
    templates = Templates.of(dag, operator.template_ext, place.get("render_template_as_native_obj"))
    misplaced, given = Given(values, operator.template_fields, templates).without_misplaced_templates()
    known, missing = parameters_of(operator), ("run_name",) if values.get("run_name", "") is None else ()
    problems = [problem_of(name, known, in_sensor=True, missing=missing) for name in unknown]
    if problems := [*problems, *misplaced, *syntax_problems(given.values, templates, dag), *sensor_problems(given)]:
        raise (TypeError if unknown else ValueError)(located(problems, place_of(place)))


def check_rendered(values: Mapping[str, Any], problems: Callable[[Given], Iterable[str]] = option_problems) -> None:
    """Raises AirflowFailException if a value is invalid after Airflow has rendered the templates.

    Args:
        values: the rendered arguments by their names.
        problems: a function that yields the problems of the arguments.
    """
    if found := list(problems(Given(values, (), Templates()))):
        raise AirflowFailException("\n".join(found))
