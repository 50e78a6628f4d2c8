"""Finds the definition of a function in its file or notebook cell, and reads the definition's source text."""

from __future__ import annotations

import ast
import inspect
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from stepset.errors import BadInputError

Definition = ast.FunctionDef | ast.AsyncFunctionDef

_STRING_STARTS = frozenset({"FSTRING_START", "TSTRING_START"})
_STRING_ENDS = frozenset({"FSTRING_END", "TSTRING_END"})
"""The tokens around an f-string of Python 3.12 and newer, and around a t-string. Older tokenizers return one STRING."""
_INDENTATION = " \t\f"


def definition_of(function: Callable[..., Any]) -> Definition:
    """Returns the syntax tree of a function's definition. The line numbers refer to the file or the cell.

    Raises BadInputError if the function is not defined with `def`, or if its source cannot be read.
    """
    return _found(function)[0]


def source_of(function: Callable[..., Any]) -> str:
    """Returns the source text of a function, without indentation and without its decorators.

    All strings keep their values, even if lines of a string or comments have less indentation than the function.
    Airflow's get_python_source removes all lines that start with '#', even if the line is part of a string. This
    function keeps such lines.

    Raises BadInputError if the function is not defined with `def`, if its source cannot be read, or if its indentation
    cannot be removed.
    """
    definition, lines = _found(function)
    text = "".join(_unindented(lines[definition.lineno - 1 : definition.end_lineno]))
    try:
        same = ast.dump(_undecorated(ast.parse(text).body[0])) == ast.dump(_undecorated(definition))
    except SyntaxError:
        same = False
    if not same:
        raise BadInputError(
            f"function: the indentation of {definition.name} cannot be removed, because its lines mix tabs, spaces and"
            " form feeds; indent all lines with spaces"
        )
    return text


def _found(function: Callable[..., Any]) -> tuple[Definition, Sequence[str]]:
    """Returns the definition of a function, and the lines of its file or cell."""
    plain = inspect.unwrap(function)
    name = getattr(plain, "__name__", type(plain).__name__)
    if name == "<lambda>":
        raise BadInputError("function: a lambda cannot be shipped; define a function with def")
    if not inspect.isfunction(plain):
        raise BadInputError(f"function: {name} is not a plain function; define it with def")
    try:
        lines, _ = inspect.findsource(plain)
        definition = _definitions("".join(lines)).get(plain.__code__.co_firstlineno)
    except (OSError, SyntaxError, ValueError) as error:
        raise BadInputError(
            f"function: the source of {name} cannot be read: {error}; define it in a file, or in a notebook cell that"
            " does not begin with %%time or another magic"
        ) from error
    if definition is None:
        raise BadInputError(
            f"function: the definition of {name} is not in line {plain.__code__.co_firstlineno} of"
            f" {plain.__code__.co_filename}; define it with def, and import a file again after changing it"
        )
    return definition, lines


@lru_cache(maxsize=4)  # a DAG file may contain many functions
def _definitions(text: str) -> Mapping[int, Definition]:
    """Returns the functions of a file by the numbers of their first lines, which contain the decorators."""
    found = (each for each in ast.walk(ast.parse(text)) if isinstance(each, Definition))
    return {min(part.lineno for part in (each, *each.decorator_list)): each for each in found}


def _undecorated(definition: ast.AST) -> ast.AST:
    """Returns a copy of a definition without its decorators."""
    fields = {**dict(ast.iter_fields(definition)), "decorator_list": []}
    return type(definition)(**fields)


def _unindented(lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a definition without the indentation of the first line. Lines inside strings are unchanged.

    A line that begins with other characters than the indentation is also unchanged, for example a comment.
    """
    first = lines[0].lstrip(_INDENTATION)
    indentation = lines[0][: -len(first)].rpartition("\f")[2]
    inside = frozenset(_rows_inside_strings(lines))
    yield first
    for row, line in enumerate(lines[1:], start=2):
        yield line if row in inside else line.removeprefix(indentation)


def _rows_inside_strings(lines: Sequence[str]) -> Iterator[int]:
    """Yields the numbers of the lines that begin inside a string. The number of the first line is 1."""
    starts: list[int] = []
    for token in tokenize.generate_tokens(iter(lines).__next__):
        kind = tokenize.tok_name[token.type]
        if kind in _STRING_STARTS:
            starts.append(token.start[0])
        elif kind == "STRING" or kind in _STRING_ENDS:
            start = token.start[0] if kind == "STRING" else starts.pop()
            yield from range(start + 1, token.end[0] + 1)
