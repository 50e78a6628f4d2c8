"""Checks the arguments of a mapped task in `expand`, because Airflow calls the constructor only in a worker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepset_airflow.airflow_internals import current_dag, current_task_group
from stepset_airflow.parsing.arguments import check_names, check_values
from stepset_airflow.parsing.given import located, place_of
from stepset_airflow.parsing.unknown_parameters import MAPPED_TO_CODE, defaults_of, take_unknown
from stepset_airflow.run.job_fields import templatable

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

Instances = Sequence[tuple[int, Mapping[str, Any]]]
"""The known mapped arguments of a task, with their indexes in the lists. For `expand`, each mapping contains one
argument. For `expand_kwargs`, each mapping contains the arguments of one instance."""
_EXPRESSION = re.compile(r"\{[{%#]-?\s*(\w*)")
"""The first word of each expression, statement and comment of a template."""
_OF_INSTANCE = re.compile(r"map_index|\{[^}]*\b(ti|task|task_instance)\b")
"""Text of a template whose value may be different in each instance of a mapped task."""
_SAME_IN_ALL_INSTANCES = (
    "conn",
    "dag",
    "dag_run",
    "data_interval_end",
    "data_interval_start",
    "ds",
    "ds_nodash",
    "logical_date",
    "run_id",
    "ts",
    "ts_nodash",
    "ts_nodash_with_tz",
    "var",
)
"""The variables of templates that have the same value in all instances of a mapped task. `params` may be mapped."""
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
        mapped: the names of the arguments of `expand`. None for `expand_kwargs`, where each instance has its own names.
            Every parameter that is not in `arguments` may then be mapped.
        instances: the known mapped arguments.
        parameters: the names of the parameters whose values are checked.
        sets_function: whether the program is the function that the decorator decorates.
    """

    def check(instance: Mapping[str, Any], names: Collection[str] | None, unknown: Mapping[str, Any]) -> None:
        values = _values_of_partial(operator, arguments, names, parameters)
        given = {**values, **{name: value for name, value in instance.items() if name in parameters}}
        if "job" in given:
            given["job"] = templatable(given["job"])
        check_values(operator, given, unknown, arguments, sets_function=sets_function)

    def check_instance(instance: Mapping[str, Any]) -> None:
        names = instance.keys() if mapped is None else mapped
        check_names(operator, names, arguments, otherwise=MAPPED_TO_CODE)
        _check_instance(instance, instances, arguments, lambda each: check(each, names, {}))

    check_names(operator, mapped or (), arguments, otherwise=MAPPED_TO_CODE)
    check({}, mapped, take_unknown(operator, dict(arguments)))
    check_instances(instances, arguments, check_instance)
    if _run_one_by_one(arguments, instances):
        return
    if problem := _shared_checkpoint_dir(_values_of_partial(operator, arguments, mapped, parameters)):
        raise ValueError(located([problem], place_of(arguments)))


def check_instances(instances: Instances, place: Mapping[str, Any], check: Callable[[Mapping[str, Any]], None]) -> None:
    """Calls `check` with all instances. Raises one error with the problems, and the index at which each occurs first.

    Args:
        instances: the known mapped arguments.
        place: the arguments of `partial`.
        check: raises TypeError or ValueError with one line for each problem of an instance.
    """
    where, found = place_of(place), dict[str, int]()
    kind: type[Exception] = ValueError
    for index, instance in instances:
        try:
            check(instance)
        except (TypeError, ValueError) as error:
            kind = kind if found else type(error)
            for line in str(error).splitlines():
                found.setdefault(line.removeprefix(f"{where}: "), index)
    if found:
        raise kind("\n".join(f"{where}, element {index}: {problem}" for problem, index in found.items()))


def _run_one_by_one(arguments: Mapping[str, Any], instances: Instances) -> bool:
    """Returns whether at most one instance of a mapped task runs at a time in a DAG run.

    Such instances can be the stages of one training, which share a checkpoint directory.
    """
    if 1 in (arguments.get("max_active_tis_per_dagrun"), arguments.get("max_active_tis_per_dag")):
        return True
    return bool(instances) and all(index == 0 for index, _ in instances)


def _shared_checkpoint_dir(values: Mapping[str, Any]) -> str:
    """Returns the problem that all instances of a mapped task use the same checkpoint directory, or "".

    The result is also "" if a template may have another value in each instance.
    """
    job = values.get("job")
    path = values.get("checkpoint_dir") or (job.get("checkpoint_dir") if isinstance(job, Mapping) else None)
    if not isinstance(path, str) or _OF_INSTANCE.search(path):
        return ""
    if any(name not in _SAME_IN_ALL_INSTANCES for name in _EXPRESSION.findall(path)):
        return ""
    return (
        f"checkpoint_dir: the instances of the mapped task would share {path}, and continue from each other's"
        f" checkpoints; write {path.rstrip('/')}/{{{{ ti.map_index }}}}"
    )


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
        name = next(iter(instance), "")
        texts = [each[name] for _, each in instances if isinstance(each.get(name), str)]
        if name not in _LISTS or len(instance) > 1 or len(texts) < 2:
            raise
        from stepset.spec.scalars import words_of

        # Texts of several words are the lists of several instances. Texts of one word are the list of one instance.
        lists = [words_of(text) for text in texts]
        lists = lists[:2] if all(len(words) > 1 for words in lists) else [texts]
        more = "" if len(lists) == len(texts) else ", ..."
        problem = (
            f"{name}: each element of the list in expand is the value of one task instance, and {texts[0]!r} is text,"
            f" not a list; write {name}=[{', '.join(map(json.dumps, lists))}{more}]"
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
