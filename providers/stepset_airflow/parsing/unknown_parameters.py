"""Arguments that no constructor of an operator accepts, and the parameters that are meant instead.

Functions import what only an error needs, because DAG files must parse quickly.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache

_INTERNAL = "_airflow"
"""Prefix of the arguments that Airflow itself passes."""


@cache
def parameters_of(operator: type) -> frozenset[str]:
    """Returns the names that the constructors of an operator and of its base classes accept."""
    found: set[str] = set()
    for base in operator.__mro__:
        if "__init__" in vars(base) and base is not object:
            parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]  # not an instance
            found |= {each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    return frozenset(found - {"self"})


def unknown_parameters(operator: type, given: Iterable[str], *, in_sensor: bool = False) -> list[str]:
    """Returns one line for each argument that no constructor of `operator` accepts.

    Args:
        operator: the operator's class.
        given: the names of the arguments.
        in_sensor: whether `operator` waits for runs instead of starting them.
    """
    known = parameters_of(operator)
    unknown = [name for name in given if name not in known and not name.startswith(_INTERNAL)]
    return [_problem(name, known, in_sensor=in_sensor) for name in unknown]


def _problem(name: str, known: frozenset[str], *, in_sensor: bool) -> str:
    from difflib import get_close_matches

    from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS

    if (parameter := KPO_PARAMETERS.get(name)) is not None:
        return f"{name}: {parameter.error_in_sensor() if in_sensor else parameter.error()}"
    close = get_close_matches(name, sorted(known), n=1)
    return f"{name}: unknown parameter; {f'did you mean {close[0]!r}?' if close else 'remove it'}"
