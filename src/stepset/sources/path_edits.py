"""Finds the directories that a module adds to `sys.path`, without running the module."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MAX_DEPTH = 50
"""The maximum nesting of an expression that is evaluated."""
_JOINS: dict[str, Callable[..., str]] = {"join": os.path.join}
_OF_ONE: dict[str, Callable[[str], str]] = {
    "dirname": os.path.dirname,
    "abspath": os.path.abspath,
    "realpath": os.path.abspath,  # does not resolve links, because the pods do not have this machine's links
    "normpath": os.path.normpath,
    "fspath": os.fspath,
    "str": str,
}


class _UnknownError(Exception):
    """The value of an expression is unknown before the module runs."""


@dataclass(frozen=True)
class PathEdits:
    """The directories that a module adds to `sys.path`.

    Args:
        directories: a mapping from the absolute path of each added directory to a bool. The bool states whether the
            path depends on the current directory.
        unknown: whether the module adds a directory whose path is unknown before the module runs.
    """

    directories: dict[Path, bool]
    unknown: bool


def path_edits(tree: ast.AST, file: Path, current: Path) -> PathEdits:
    """Returns the directories that a module adds to `sys.path`.

    Args:
        tree: the syntax tree of the module.
        file: the absolute path of the module's file.
        current: the directory in which the module runs.
    """
    directories: dict[Path, bool] = {}
    unknown = False
    reader = _Reader(file, current)
    statements = (node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)))
    for node in sorted(statements, key=lambda node: node.lineno):
        reader.assign(node)
        for added in _added(node):
            try:
                path, from_current = reader.directory(added)
            except _UnknownError:
                unknown = True
            else:
                directories.setdefault(path, from_current)
    return PathEdits(directories, unknown)


def _added(node: ast.stmt) -> Iterator[ast.expr]:
    """Yields the expressions for the directories that a statement adds to `sys.path`."""
    if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "sys.path":
        yield from _items(node.value)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        name = ast.unparse(call.func)
        if name in ("sys.path.append", "sys.path.insert", "site.addsitedir") and call.args:
            yield call.args[-1]
        elif name == "sys.path.extend" and call.args:
            yield from _items(call.args[0])


def _items(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]


class _Reader:
    """Evaluates expressions for paths without running the module.

    An expression can consist of string literals, joins of paths, `__file__` and its parent directories, and variables
    that the module assigned from such expressions.
    """

    def __init__(self, file: Path, current: Path) -> None:
        self._current = str(current)
        self._names: dict[str, str | Path] = {"__file__": str(file)}
        self._from_current: dict[str, bool] = {}
        self._used_current = False

    def assign(self, node: ast.stmt) -> None:
        """Stores the value that a statement assigns to a variable. If the value is unknown, forgets the variable."""
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            return
        name = node.targets[0].id
        try:
            self._used_current = False
            self._names[name] = self._value(node.value)
            self._from_current[name] = self._used_current
        except _UnknownError:
            self._names.pop(name, None)

    def directory(self, node: ast.expr) -> tuple[Path, bool]:
        """Returns the path of a directory, and whether this path depends on the current directory."""
        self._used_current = False
        text = self._absolute(str(self._value(node)))
        return Path(text), self._used_current

    def _absolute(self, text: str) -> str:
        self._used_current |= not os.path.isabs(text)  # noqa: PTH117  # no Path
        return os.path.normpath(os.path.join(self._current, text))  # noqa: PTH118  # must not follow links

    def _value(self, node: ast.expr, depth: int = 0) -> str | Path:
        if depth > _MAX_DEPTH:
            raise _UnknownError
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name) if name in self._names:
                self._used_current |= self._from_current.get(name, False)
                return self._names[name]
            case ast.JoinedStr(values=parts):
                return "".join(str(self._value(part, depth + 1)) for part in parts)
            case ast.FormattedValue(value=value):
                return self._value(value, depth)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return f"{self._value(left, depth + 1)}{self._value(right, depth + 1)}"
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return Path(self._value(left, depth + 1)) / self._value(right, depth + 1)
            case ast.Attribute(value=value, attr="parent"):
                return self._path(value, depth).parent
            case ast.Subscript(value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(number))):
                parents = self._path(value, depth).parents
                if not 0 <= number < len(parents):
                    raise _UnknownError
                return parents[number]
            case ast.Attribute(attr="pardir"):
                return os.pardir
            case ast.Call():
                return self._call(node, depth + 1)
        raise _UnknownError

    def _path(self, node: ast.expr, depth: int) -> Path:
        found = self._value(node, depth + 1)
        if not isinstance(found, Path):
            raise _UnknownError
        return found

    def _call(self, node: ast.Call, depth: int) -> str | Path:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if node.keywords and name != "resolve":
            raise _UnknownError
        if isinstance(node.func, ast.Attribute) and name in ("resolve", "absolute"):
            return Path(self._absolute(str(self._path(node.func.value, depth))))
        if isinstance(node.func, ast.Attribute) and name in ("joinpath", "as_posix"):
            return self._path(node.func.value, depth).joinpath(*(self._value(each, depth) for each in node.args))
        values = [self._value(each, depth) for each in node.args]
        if name in ("Path", "PurePath", "PosixPath"):
            return Path(*values)
        if name in ("getcwd", "cwd") and not values:
            self._used_current = True
            return Path(self._current) if name == "cwd" else self._current
        if name in _JOINS and values:
            return _JOINS[name](*map(str, values))
        if name in _OF_ONE and len(values) == 1:
            text = str(values[0])
            return _OF_ONE[name](self._absolute(text) if name in ("abspath", "realpath") else text)
        raise _UnknownError
