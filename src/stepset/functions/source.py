"""Checks that the source text of a function is a complete program, and finds the names that the text lacks."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from stepset.errors import BadInputError
from stepset.functions.definition import definition_of, source_of
from stepset.functions.imports import imports_of
from stepset.functions.program import Place

_GET_IPYTHON = "get_ipython"
_SHELL_REMEDY = "lines that begin with ! or % call get_ipython; for a shell command, call subprocess.run instead"
_OF_IPYTHON = frozenset({"__IPYTHON__", "display", _GET_IPYTHON})
"""The names that IPython adds to the builtins. These names are not available in ranks."""
_OF_EVERY_MODULE = frozenset(
    {*vars(builtins), "__file__", "__annotations__", "__module__", "__qualname__"} - _OF_IPYTHON
)
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})


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


def captured_names(source: str) -> list[str]:
    """Returns the sorted names that a function uses without defining them. Builtins and `__name__` are left out.

    Names in annotations are also left out, because the program does not evaluate annotations. Names in default values
    of parameters are included.

    >>> captured_names("def train(epochs: Count, rate=RATE):\\n    return torch.ones(epochs) * len(str(rate))")
    ['RATE', 'torch']
    """
    module = compile(f"from __future__ import annotations\n{source}", "<function>", "exec", dont_inherit=True)
    codes = list(_codes(module))
    everywhere = {name for code in codes for name in _names(code, _STORES) if code is module or name in _globals(code)}
    captured = {name for code in codes for name in _names(code, _LOADS) - _names(code, _STORES)}
    return sorted(captured - everywhere - _OF_EVERY_MODULE)


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
        imports = imports_of(function, {*captured} - _OF_IPYTHON)
        others = [each for each in captured if each not in imports]
        them = "it" if captured == others[:1] else "them" if captured == others else ", ".join(others)
        statements = [repr(each) for statements in imports.values() for each in statements]
        remedies = [f"add {', '.join(statements)} inside {name}"] if imports else []
        if others:
            remedies.append(f"import or define {them} inside {name}, {alternatives.format(them=them)}")
        if captured == [_GET_IPYTHON]:
            raise BadInputError(f"function: {name} uses {_GET_IPYTHON}, which the ranks do not have; {_SHELL_REMEDY}")
        raise BadInputError(
            f"function: {name} uses {', '.join(captured)} from outside, and only its own source is shipped;"
            f" {'; '.join(remedies)}"
            f"{f'; {_SHELL_REMEDY}' if _GET_IPYTHON in captured else ''}"
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


def checked_source(function: Callable[..., Any]) -> str:
    """Returns the source of a function that works without its module.

    The source begins with the import statements of the names that the function uses and that its module has imported.

    Raises:
        BadInputError: the function is not defined with `def`, is a generator, has decorators, or uses other names of
            its module. Also raised if the source of the function cannot be read.
    """
    name = function.__name__
    source = source_of(function)
    check_kind(inspect.unwrap(function))  # decorators are not shipped
    check_decorators(function, "", f"remove it, or import {name} from a module")
    captured = captured_names(source)
    imports = imports_of(function, {*captured} - _OF_IPYTHON)
    others = [each for each in captured if each not in imports]
    check_captured(function, others, _alternatives(function, others))
    return "".join(f"{each}\n" for statements in imports.values() for each in statements) + source


def _alternatives(function: Callable[..., Any], captured: Sequence[str]) -> str:
    """Returns the remedies for captured names.

    Functions and classes of the caller, and objects that are not JSON data, cannot be passed in args.
    """
    name, known = function.__name__, getattr(function, "__globals__", {})
    helpers = [each for each in captured if _is_helper(known.get(each), function.__module__)]
    objects = [each for each in captured if each in known and each not in helpers and not _is_data(known[each])]
    plural = "their paths" if len(objects) > 1 else "its path"
    passed = f"save {', '.join(objects)} to a file and pass {plural} in args" if objects else "pass {them} in args"
    if not helpers:
        return f"{passed}, or import {name} from a module"
    names = ", ".join(helpers)
    move = (
        f"move {names} to helpers.py"
        if function_file(function)
        else f"start the cell of {names} with '%%writefile helpers.py'"
    )
    use = f"{move} and add 'from helpers import {names}' inside {name}"
    return f"or {use}" if len(helpers) == len(captured) else f"or {passed}; for {names}, {use}"


def _is_data(value: object) -> bool:
    """Returns whether a value can be an argument, possibly as text, a list or a mapping of the same data."""
    if value is None or isinstance(value, (str, bool, int, float, Path)) or is_dataclass(value):
        return True
    if getattr(value, "ndim", None) == 0:  # a scalar of numpy or torch
        return True
    if isinstance(value, Mapping):
        return all(map(_is_data, value.values()))
    return isinstance(value, (list, tuple, set, frozenset)) and all(map(_is_data, value))


def _is_helper(value: object, module: str) -> bool:
    return isinstance(value, (FunctionType, type)) and value.__module__ == module


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and all code objects that it contains."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _names(code: CodeType, operations: frozenset[str]) -> set[str]:
    return {each.argval for each in dis.get_instructions(code) if each.opname in operations}


def _globals(code: CodeType) -> set[str]:
    return _names(code, frozenset({"STORE_GLOBAL"}))
