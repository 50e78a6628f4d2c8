"""Arguments that no constructor of an operator accepts, and the parameters that are meant instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import cache

from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS, KpoParameter

_INTERNAL = "_airflow"
"""Prefix of the arguments that Airflow itself passes."""

Advice = Callable[[KpoParameter], str]
"""Returns what to write instead of a parameter of KubernetesPodOperator."""


@cache
def parameters_of(operator: type) -> frozenset[str]:
    """Returns the names that the constructors of an operator and of its base classes accept."""
    found: set[str] = set()
    for base in operator.__mro__:
        if "__init__" in vars(base) and base is not object:
            parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]  # not an instance
            found |= {each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    return frozenset(found - {"self"})


def unknown_parameters(operator: type, given: Iterable[str], advice: Advice = KpoParameter.error) -> list[str]:
    """Returns one line for each argument that no constructor of `operator` accepts; `advice` differs by operator."""
    known = parameters_of(operator)
    return [_problem(name, known, advice) for name in given if name not in known and not name.startswith(_INTERNAL)]


def _problem(name: str, known: frozenset[str], advice: Advice) -> str:
    if (parameter := KPO_PARAMETERS.get(name)) is not None:
        return f"{name}: {advice(parameter)}"
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"{name}: unknown parameter; {f'did you mean {close[0]!r}?' if close else 'remove it'}"
