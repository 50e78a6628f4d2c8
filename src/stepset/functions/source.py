"""Checks that the source text of a function is a complete program, and finds the names that the text lacks."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from stepset.errors import BadInputError
from stepset.functions.definition import definition_of, source_of
from stepset.functions.imports import imports_of
from stepset.functions.included import includable, included
from stepset.functions.program import Place
from stepset.functions.used_names import GET_IPYTHON, OF_IPYTHON, captured_names

_SHELL_REMEDY = "lines that begin with ! or % call get_ipython; for a shell command, call subprocess.run instead"


def function_file(function: Callable[..., Any]) -> str:
    """Returns the path of the file that defines a function. Returns "" for a function of a notebook cell.

    ipykernel may write a cell to a file TMPDIR/ipykernel_PID/HASH.py for its debugger.
    """
    path = getattr(getattr(function, "__code__", None), "co_filename", "")
    if not os.path.isfile(path):  # noqa: PTH113  # may be text such as <stdin>
        return ""
    file = Path(os.path.realpath(path))
    of_cell = file.parent.name.startswith("ipykernel_") and file.parents[1] == Path(tempfile.gettempdir()).resolve()
    return "" if of_cell else str(file)


def place_of(function: FunctionType) -> Place | None:
    """Returns where a function without decorators is defined. Returns None if the cell of the function is unknown."""
    code = function.__code__
    name = Path(function_file(function)).name or _cell_name(code.co_filename)
    return Place(name, code.co_firstlineno) if name else None


def _cell_name(path: str) -> str:
    """Returns the name that IPython shows for a cell, such as `In[7]`. Returns "" if `path` is not a cell of IPython.

    Also returns "" for IPython 7, which has no such names. A kernel has loaded IPython before it executes a cell, so
    this function does not import IPython.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = name_of(path) if name_of is not None else None
    return found[1] if found else ""


def check_captured(function: Callable[..., Any], captured: Collection[str], alternatives: str) -> None:
    """Checks that a function uses no names of its module.

    Args:
        captured: the names that the function uses without defining them.
        alternatives: the remedies that the message suggests in addition to an import inside the function. `{them}` is a
            placeholder for the captured names that the module does not import.

    Raises:
        BadInputError: the function uses names of its module. The message contains these names.
    """
    name = function.__name__
    if captured:
        imports = imports_of(function, {*captured} - OF_IPYTHON)
        others = [each for each in captured if each not in imports]
        them = "it" if captured == others[:1] else "them" if captured == others else ", ".join(others)
        statements = [repr(each) for statements in imports.values() for each in statements]
        remedies = [f"add {', '.join(statements)} inside {name}"] if imports else []
        if others:
            remedies.append(f"import or define {them} inside {name}, {alternatives.format(them=them)}")
        if captured == [GET_IPYTHON]:
            raise BadInputError(f"function: {name} uses {GET_IPYTHON}, which the ranks do not have; {_SHELL_REMEDY}")
        raise BadInputError(
            f"function: {name} uses {', '.join(captured)} from outside, and only its own source is shipped;"
            f" {'; '.join(remedies)}"
            f"{f'; {_SHELL_REMEDY}' if GET_IPYTHON in captured else ''}"
        )


def check_kind(function: Callable[..., Any]) -> None:
    """Checks that a call of a function returns the value, and not an object that must be awaited or iterated over.

    Raises:
        BadInputError: the function is an async function or a generator.
    """
    name = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BadInputError(
            f"function: {name} is an async function, which the ranks do not await; define it with def, and call"
            f" asyncio.run inside {name}"
        )
    if inspect.isgeneratorfunction(function):
        raise BadInputError(
            f"function: {name} is a generator, which the ranks do not iterate over; return a value instead of"
            " yielding it"
        )


def check_decorators(function: Callable[..., Any], ours: str, remedy: str) -> None:
    """Checks that no decorator changes a function, because only the source of the function is shipped.

    Args:
        ours: the name of stepset's decorator. This decorator and the decorators above it are allowed. With "", no
            decorator is allowed.
        remedy: what the message suggests.

    Raises:
        BadInputError: the function has other decorators, or its definition cannot be read.
    """
    found = definition_of(function).decorator_list
    names = [ast.unparse(each.func if isinstance(each, ast.Call) else each).rpartition(".")[2] for each in found]
    own = [number for number, name in enumerate(names) if ours and name == ours]
    others = found[own[-1] + 1 :] if own else [] if ours else found
    if others:
        raise BadInputError(
            f"function: the decorator @{ast.unparse(others[0])} of {function.__name__} is not shipped; {remedy}"
        )


def checked_source(function: Callable[..., Any], include: Iterable[object] = ()) -> str:
    """Returns the source of a function that works without its module.

    The source begins with the import statements of the names that the function uses and that its module has imported,
    and with the included definitions and constants.

    Args:
        include: functions, classes and constants of the module that are shipped, too (`included`).

    Raises:
        BadInputError: the function is not defined with `def`, is a generator, has decorators, or uses other names of
            its module. Also raised if the source of the function cannot be read, or if `include` is invalid.
    """
    name = function.__name__
    source = source_of(function)
    check_kind(inspect.unwrap(function))  # decorators are not shipped
    check_decorators(function, "", f"remove it, or import {name} from a module")
    texts = included(function, include)
    captured = sorted({used for text in (source, *texts.values()) for used in captured_names(text)} - texts.keys())
    imports = imports_of(function, {*captured} - OF_IPYTHON)
    others = [each for each in captured if each not in imports]
    check_captured(function, others, _alternatives(function, others, texts))
    statements = (f"{each}\n" for statements in imports.values() for each in statements)
    return "".join((*statements, *(f"\n\n{text}" for text in texts.values()), "\n\n" if texts else "", source))


def _alternatives(function: Callable[..., Any], captured: Sequence[str], given: Iterable[str]) -> str:
    """Returns the remedies for captured names: an argument or a file for values, and `include` for what can be shipped.

    Args:
        given: the names that are included already.
    """
    name, known = function.__name__, getattr(function, "__globals__", {})
    shipped = includable(function, captured)
    left = [each for each in captured if each not in shipped]
    objects = [each for each in left if each in known and not _is_data(known[each])]
    values = [each for each in left if each not in objects]
    remedies = []
    if shipped:
        place = f" for {', '.join(each for each in captured if each in shipped)}" if left else ""
        remedies.append(f"add include={sorted({*given, *shipped})!r} to the call{place}")
    if objects:
        path = "their paths" if len(objects) > 1 else "its path"
        remedies.append(f"save {', '.join(objects)} to a file and pass {path} in args")
    if values:
        remedies.append(f"pass {', '.join(values) if len(left) < len(captured) or objects else '{them}'} in args")
    if not shipped:
        remedies.append(f"import {name} from a module")
    return ", ".join((*remedies[:-1], f"or {remedies[-1]}"))


def _is_data(value: object) -> bool:
    """Returns whether a value can be an argument, possibly as text, a list or a mapping of the same data."""
    if value is None or isinstance(value, (str, bool, int, float, Path)) or is_dataclass(value):
        return True
    if getattr(value, "ndim", None) == 0:  # a scalar of numpy or torch
        return True
    if isinstance(value, Mapping):
        return all(map(_is_data, value.values()))
    return isinstance(value, (list, tuple, set, frozenset)) and all(map(_is_data, value))
