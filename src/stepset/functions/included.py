"""Finds the definitions and constants of a function's module that are shipped with the source of the function.

The argument `include` of `stepset.run` contains their names.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import FunctionType
from typing import Any

from stepset.errors import BadInputError
from stepset.functions.imports import imports_of, texts_of
from stepset.functions.program import json_arguments
from stepset.functions.used_names import captured_names


def included(function: Callable[..., Any], include: Iterable[object]) -> dict[str, str]:
    """Returns the source of each name in `include`: a definition, or the assignment of a constant.

    A definition follows the definitions and constants that it uses, so its base classes and default values are known.

    Args:
        include: functions and classes, or the names of functions, classes and constants.

    Raises:
        BadInputError: a name is unknown, or its value is neither a function or class of the function's module nor JSON
            data.
    """
    plain = inspect.unwrap(function)
    known: Mapping[str, Any] = getattr(plain, "__globals__", {})
    names = [each if isinstance(each, str) else getattr(each, "__name__", repr(each)) for each in include]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else "give the names of functions, classes and constants"
            raise BadInputError(f"include: {name!r} is not defined in the module of {plain.__name__}; {remedy}")
    texts = _texts(plain, names)
    if lacking := [name for name in names if name not in texts and not imports_of(plain, [name])]:
        kind = type(known[lacking[0]]).__name__
        raise BadInputError(
            f"include: {lacking[0]} is of type {kind}; only functions, classes and JSON data can be included; save"
            f" {lacking[0]} to a file, and pass the path in args"
        )
    return texts


def includable(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """Returns those of the names that `include` can contain, and the names that these need."""
    plain = inspect.unwrap(function)
    found: dict[str, str] = {}
    while new := {*names} - found.keys():
        texts = _texts(plain, new)
        found |= texts
        names = {used for text in texts.values() for used in captured_names(text)}
        names -= imports_of(plain, names).keys()
        if not texts:
            break
    return sorted(found)


def _texts(function: FunctionType, names: Collection[str]) -> dict[str, str]:
    """Returns the source of those names that can be included. The source of a name follows that of names it uses."""
    known = function.__globals__
    values = {name: known[name] for name in names if name in known}
    own = {name for name, value in values.items() if _belongs_to(value, function.__module__)}
    texts = {name: text for name, value in values.items() if name not in own and (text := _constant(name, value))}
    for tree, lines in texts_of(function) if own else ():
        for node in tree.body if lines else ():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name in own:
                first = min(each.lineno for each in (node, *node.decorator_list))
                texts[node.name] = "\n".join(lines[first - 1 : node.end_lineno]) + "\n"  # the last definition counts
    ordered: dict[str, str] = {}
    for name in sorted(texts):
        _add(name, texts, ordered, ())
    return ordered


def _belongs_to(value: object, module: str) -> bool:
    """Returns whether a module defines a function or class. A decorator may have wrapped the function in an object."""
    plain = inspect.unwrap(value) if callable(value) else value
    return isinstance(plain, (FunctionType, type)) and plain.__module__ == module


def _add(name: str, texts: Mapping[str, str], ordered: dict[str, str], users: tuple[str, ...]) -> None:
    if name in texts and name not in ordered and name not in users:
        for used in captured_names(texts[name]):
            _add(used, texts, ordered, (*users, name))
        ordered[name] = texts[name]


def _constant(name: str, value: object) -> str:
    """Returns the assignment of JSON data or of a path to a name. Returns "" for other values."""
    if isinstance(value, Path):
        return f"{name} = __import__('pathlib').Path({str(value)!r})\n"
    if isinstance(value, tuple):
        text = _constant(name, list(value))
        return text and f"{name} = tuple({text.partition(' = ')[2].rstrip()})\n"
    try:
        return f"{name} = {json_arguments([value])['args'][0]!r}\n"
    except BadInputError:
        return ""
