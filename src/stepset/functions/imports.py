"""Finds the import statements for names that a function uses and that its module has imported."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

Statements = dict[str, tuple[str, ...]]

_COMMANDS = ("%", "!")
_IMPORTABLE = (ModuleType, type, FunctionType, BuiltinFunctionType)


def imports_of(function: Callable[..., Any], names: Collection[str]) -> Statements:
    """Returns the import statements for each of the names whose value is imported in the module of a function.

    The statements are those of the function's file, or of the executed cells of a notebook. Their effect can depend on
    the process: in a notebook, `from tqdm.auto import tqdm` imports another class than in a rank. If no statement
    imports the current value of a name, for example after `from math import *`, the statement is derived from the
    value. Names of other values are left out.
    """
    plain = inspect.unwrap(function)
    known: Mapping[str, Any] = getattr(plain, "__globals__", {})
    values = {name: known[name] for name in sorted(names) if name in known}
    found: dict[str, dict[str, None]] = {name: {} for name in values}  # the keys are the statements
    for tree, _ in texts_of(plain) if values else ():
        for name, statement in _written(tree, values):
            found[name][statement] = None
    for name, value in values.items():
        if not found[name] and (statement := _derived(name, value, plain.__module__)):
            found[name][statement] = None
    return {name: tuple(statements) for name, statements in found.items() if statements}


def texts_of(function: Callable[..., Any]) -> Iterator[tuple[ast.Module, Sequence[str]]]:
    """Yields the text that defines a function, and the executed cells of a notebook (IPython's variable `In`).

    Each text is a syntax tree and the lines of the tree. Lines with commands of IPython are empty. If a command is
    indented, it may belong to a definition, and there are no lines.
    """
    cells = getattr(function, "__globals__", {}).get("In")
    texts = ["".join(inspect.findsource(function)[0]), *(cells if isinstance(cells, list) else ())]
    yield from filter(None, (_parsed(text) for text in texts if isinstance(text, str)))


@lru_cache(maxsize=256)  # a call reads the cells of a notebook several times
def _parsed(text: str) -> tuple[ast.Module, Sequence[str]] | None:
    """Returns the syntax tree of a text and its lines, as `texts_of` yields them. None for another language."""
    lines = text.splitlines()
    outer = ["" if line.startswith(_COMMANDS) else line for line in lines]
    inner = ["" if line.lstrip().startswith(_COMMANDS) else line for line in lines]
    for kept, known in ((lines, lines), (outer, outer), (inner, ())):
        with suppress(SyntaxError, ValueError):  # a cell with commands, or of another language
            return ast.parse("\n".join(kept)), known
    return None


def _written(tree: ast.Module, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the import statements in a text that import the given values, each with the name that it binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                name = each.asname or each.name.partition(".")[0]
                if name in values and values[name] is sys.modules.get(each.name if each.asname else name):
                    yield name, ast.unparse(ast.Import([each]))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                name, module = each.asname or each.name, sys.modules.get(node.module)
                if name in values and values[name] is getattr(module, each.name, _MISSING):
                    yield name, ast.unparse(ast.ImportFrom(node.module, [each], 0))


_MISSING = object()


def _derived(name: str, value: Any, own: str) -> str:
    """Returns a statement that imports a module, class or function as `name`. Returns "" if there is none.

    Args:
        own: the module of the function, from which the ranks cannot import.
    """
    if not isinstance(value, _IMPORTABLE):
        return ""
    original = value.__name__
    renamed = "" if original == name else f" as {name}"
    if isinstance(value, ModuleType):
        return f"import {original}{renamed}" if sys.modules.get(original) is value and original != own else ""
    module = _public_module(value)
    return f"from {module} import {original}{renamed}" if module not in ("", own) else ""


def _public_module(value: type | FunctionType | BuiltinFunctionType) -> str:
    """Returns the module from which a class or function can be imported. Returns "" if there is none.

    Python 3.13 defines `pathlib.Path` in the private module `pathlib._local`. Then the public module is returned.
    """
    module = str(value.__module__) if isinstance(getattr(value, "__module__", None), str) else ""
    for place in (module.partition("._")[0], module):
        if getattr(sys.modules.get(place), value.__name__, None) is value:
            return place
    return ""
