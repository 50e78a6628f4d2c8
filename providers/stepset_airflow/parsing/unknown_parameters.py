"""Finds arguments that no constructor of an operator accepts, and suggests the parameters that the user may have meant.

Airflow must be able to parse DAG files quickly. Therefore modules are imported inside functions if they are needed only
for an error message.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

_INTERNAL = "_airflow"
"""The prefix of the names of arguments that Airflow itself passes."""
_WITHOUT_EFFECT = frozenset({"resources"})
"""Parameters of BaseOperator that have no effect on a training, but whose names suggest an effect."""

_RESOURCES = 'write for example resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}'
_MEANT = {
    "bash_command": 'write command=["bash", "-c", "..."]',
    "environment": "did you mean 'env'?",
    "python_callable": "decorate the function with @task.distributed_train instead",
    **dict.fromkeys(("op_args", "op_kwargs"), "pass the arguments in the call of the decorated function"),
    "timeout": "did you mean 'deadline', which limits the run, or 'execution_timeout', which limits the try?",
    **dict.fromkeys(("cpu", "cpus", "memory", "gpu", "gpus", "num_gpus", "gpus_per_node"), _RESOURCES),
}
"""Hints for names that users may expect, but that are not similar to the parameters of the operator."""
PROGRAMS = {"bash_command": "command", "python_callable": "function"}
"""Parameters of other operators, and the field that defines the same program."""
_REMOVE = "remove it"
MAPPED_TO_CODE = (
    'for an argument of the training code, map args, such as expand(args=[["--lr", "0.1"], ["--lr", "0.01"]])'
)
"""The hint for an argument of `expand` that is not similar to any parameter."""


@cache
def parameters_of(operator: type) -> frozenset[str]:
    """Returns the names of all parameters of the constructors of an operator and of its base classes.

    Parameters of BaseOperator without an effect on a training are left out.
    """
    found = {each.name for each in _parameters(operator) if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    return frozenset(found - {"self"} - _WITHOUT_EFFECT)


@cache
def own_parameters(operator: type) -> tuple[str, ...]:
    """Returns the names of the keyword parameters that the constructor of the class itself defines."""
    parameters = inspect.signature(operator.__init__).parameters.values()  # type: ignore[misc]  # not an instance
    return tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)


@cache
def defaults_of(operator: type) -> Mapping[str, Any]:
    """Returns the default values of the parameters of the constructors of an operator and of its base classes."""
    return {each.name: each.default for each in _parameters(operator) if each.default is not each.empty}


def _parameters(operator: type) -> Iterator[inspect.Parameter]:
    """Yields the parameters of the constructors, beginning with the base classes."""
    for base in reversed(operator.__mro__):
        if "__init__" in vars(base) and base is not object:
            yield from inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]  # not an instance


def unknown_parameters(
    operator: type, given: Iterable[str], *, in_sensor: bool = False, otherwise: str = _REMOVE
) -> list[str]:
    """Returns one line for each argument that no constructor of `operator` accepts.

    Args:
        operator: the class of the operator.
        in_sensor: whether `operator` is DistributedTrainSensor. The lines then describe parameters of the sensor.
        otherwise: the hint for an argument that is not similar to any parameter.
    """
    known = parameters_of(operator)
    return [
        problem_of(name, known, in_sensor=in_sensor, otherwise=otherwise) for name in given if _is_unknown(name, known)
    ]


def take_unknown(operator: type, arguments: dict[str, Any], *, unmapping: bool = False) -> dict[str, Any]:
    """Removes the arguments that no constructor of `operator` accepts, and returns them.

    `unmapping` is true if Airflow creates the operator of a mapped task in a worker. In this case, Airflow also passes
    entries of `default_args` that are parameters of BaseOperator. These entries remain in `arguments`.
    """
    known = parameters_of(operator) | (_WITHOUT_EFFECT if unmapping else frozenset())
    return {name: arguments.pop(name) for name in list(arguments) if _is_unknown(name, known)}


def _is_unknown(name: str, known: frozenset[str]) -> bool:
    return name not in known and not name.startswith(_INTERNAL)


def problem_of(
    name: str,
    known: frozenset[str],
    *,
    in_sensor: bool = False,
    missing: Iterable[str] = (),
    otherwise: str = _REMOVE,
) -> str:
    """Returns the line of the error message that describes one unknown argument.

    `missing` contains the names of required parameters that have no argument. `otherwise` is the hint if no parameter
    has a similar name.
    """
    from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS

    if (parameter := KPO_PARAMETERS.get(name)) is not None:
        return f"{name}: {parameter.error_in_sensor() if in_sensor else parameter.error()}"
    if name in _MEANT and not in_sensor:
        return f"{name}: unknown parameter; {_MEANT[name]}"
    close = next((each for each in missing if each.startswith(name)), None) or closest(name, known)
    return f"{name}: unknown parameter; {f'did you mean {close!r}?' if close else otherwise}"


def place_of_code_argument(name: str, value: object, *, sets_function: bool) -> str:
    """Returns the hint for an unknown argument that may be meant for the training code.

    Only a number is shown, because another value may be long or secret.
    """
    if sets_function:
        return f"{_REMOVE}; an argument of the function belongs in the call of the function"
    shown = value if isinstance(value, (int, float)) and not isinstance(value, bool) else "..."
    return f'{_REMOVE}; an argument of the training code belongs in args, such as args=["--{name}", "{shown}"]'


def closest(name: str, known: frozenset[str]) -> str | None:
    """Returns the parameter whose name a user may have misspelled as `name`, or None if no name is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, sorted(known), n=1)), None)
