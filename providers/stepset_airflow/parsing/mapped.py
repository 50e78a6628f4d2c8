"""Checks the arguments of a mapped task in `expand`, because Airflow calls the constructor only in a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepset_airflow.airflow_internals import current_dag, current_task_group
from stepset_airflow.parsing.arguments import check_names, check_values
from stepset_airflow.parsing.place import located, place_of
from stepset_airflow.parsing.unknown_parameters import MAPPED_TO_CODE, defaults_of, take_unknown
from stepset_airflow.run.job_fields import templatable

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

Instances = Sequence[Mapping[str, Any]]
"""The known mapped arguments of a task. For `expand`, each mapping contains one argument. For `expand_kwargs`, each
mapping contains the arguments of one instance."""
_LISTS = ("args", "command", "requirements")
"""The parameters whose values are lists of texts."""


def check_mapped(
    operator: type[BaseOperator],
    arguments: Mapping[str, Any],
    mapped: Collection[str] | None,
    instances: Instances,
    parameters: Collection[str],
    *,
    sets_function: bool,
) -> None:
    """Checks the arguments of a mapped task as far as they are known. Raises the errors of `check_values`.

    Args:
        operator: the class of the operator.
        arguments: the arguments of `partial`, or of the decorator.
        mapped: the names of the arguments of `expand`. If `mapped` is None, the names are unknown, and every parameter
            that is not in `arguments` may be mapped.
        instances: the known mapped arguments.
        parameters: the names of the parameters whose values are checked.
        sets_function: whether the program is the function that the decorator decorates.
    """

    def check(instance: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
        given = {**values, **{name: value for name, value in instance.items() if name in parameters}}
        if "job" in given:
            given["job"] = templatable(given["job"])
        check_values(operator, given, unknown, arguments, sets_function=sets_function)

    check_names(operator, mapped or (), arguments, otherwise=MAPPED_TO_CODE)
    values = _values_of_partial(operator, arguments, mapped, parameters)
    check({}, take_unknown(operator, dict(arguments)))
    for instance in instances:
        _check_instance(instance, instances, arguments, lambda each: check(each, {}))


def _check_instance(
    instance: Mapping[str, Any],
    instances: Instances,
    place: Mapping[str, Any],
    check: Callable[[Mapping[str, Any]], None],
) -> None:
    """Calls `check` with an instance.

    If `expand` has a list of texts where it needs a list of lists, the error suggests the list of lists.
    """
    try:
        check(instance)
    except ValueError:
        name, value = next(iter(instance.items()))
        texts = [each[name] for each in instances if isinstance(each.get(name), str)]
        if name not in _LISTS or len(instance) > 1 or len(texts) < 2:
            raise
        problem = (
            f"{name}: each element of the list in expand is the value of one task instance, and {value!r} is text, not"
            f" a list; write {name}=[{json.dumps(texts)}, ...]"
        )
        raise ValueError(located([problem], place_of(place))) from None


def _values_of_partial(
    operator: type[BaseOperator],
    arguments: Mapping[str, Any],
    mapped: Collection[str] | None,
    parameters: Collection[str],
) -> dict[str, Any]:
    """Returns the names and values of those `parameters` that have one value in all instances of a mapped task.

    Args:
        operator: the class of the operator.
        arguments: the arguments of `partial`, or of the decorator.
        mapped: the names of the arguments of `expand`. If `mapped` is None, the names are unknown, and every parameter
            that is not in `arguments` may be mapped.
        parameters: the names of the parameters.
    """
    values = dict(arguments)
    # A constructor of a user's class may set parameters that `partial` and `expand` do not set.
    if mapped is not None and operator.__init__.__module__.partition(".")[0] in ("airflow", "stepset_airflow"):
        dag = arguments.get("dag") or current_dag()
        group = arguments.get("task_group") or (None if dag is None else current_task_group(dag))
        values = dict(defaults_of(operator))
        for holder in (dag, group):
            values |= holder.default_args if holder is not None else {}
        values |= {**(arguments.get("default_args") or {}), **arguments}
    return {name: values[name] for name in parameters if name in values and name not in (mapped or ())}
