"""Writes docs/api/PACKAGE.txt, which lists the public names of a package with their signatures, fields and defaults.

`make docs` runs this program. Tests run it with `--check`, and fail if a file does not match the code. Therefore every
change of the public API appears in the diff of a commit.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any, ForwardRef, get_args

from pydantic import BaseModel

PAGES = Path(__file__).resolve().parents[1] / "docs" / "api"
PACKAGES = ("stepset", "stepset_airflow", "stepset_kfp")
_WIDTH = 120


def snapshot(module: ModuleType) -> str:
    """Returns one block of lines for each name in the module's `__all__`, sorted by name.

    Raises:
        ValueError: the text of a default value contains a memory address.
    """
    blocks = [
        "\n".join(lines_of(f"{module.__name__}.{name}", getattr(module, name))) for name in sorted(module.__all__)
    ]
    text = "\n\n".join(blocks) + "\n"
    if " at 0x" in text:
        line = text.split(" at 0x")[0].splitlines()[-1]
        raise ValueError(f"{module.__name__}: a value without a repr of its own: {line}")
    return text


def differences(expected: str, actual: str, name: str) -> str:
    """Returns a unified diff of two texts. The diff is empty if the texts are equal."""
    lines = difflib.unified_diff(
        expected.splitlines(keepends=True), actual.splitlines(keepends=True), name, f"{name} (now)"
    )
    return "".join(lines)


def lines_of(name: str, value: Any) -> Iterator[str]:
    """Yields the lines of one public name: its signature, and the fields and methods of a class."""
    match value:
        case ModuleType():
            yield f"module {name}"
            yield ""
            yield snapshot(value).rstrip("\n")
        case type():
            yield from _class(name, value)
        case UnionType():
            yield f"type {name} = {' | '.join(_type_name(part) for part in get_args(value))}"
        case FunctionType():
            yield from _function("", name, value)
        case _:
            yield f"{name}: {type(value).__name__}"


def _class(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}{f'({bases})' if bases else ''}"
    if issubclass(cls, Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in cls)
    elif "__dataclass_fields__" in vars(cls):
        for field in fields(cls):
            default = field.default if field.default_factory is MISSING else field.default_factory
            yield f"    {field.name}: {_annotation(field.type)}{_default(default, MISSING)}"
    elif fields_of_tuple := _tuple_fields(cls):
        for field_name in fields_of_tuple:
            default = getattr(cls, "_field_defaults", {}).get(field_name, MISSING)
            yield f"    {field_name}: {_written_annotation(cls, field_name)}{_default(default, MISSING)}"
    elif issubclass(cls, BaseModel):
        for field_name, model_field in cls.model_fields.items():
            default = MISSING if model_field.is_required() else model_field.default_factory or model_field.default
            yield f"    {field_name}: {_written_annotation(cls, field_name)}{_default(default, MISSING)}"
    elif isinstance(cls.__init__, FunctionType) and inspect.unwrap(cls.__init__).__module__.split(".")[0] in PACKAGES:
        yield from _function("    ", "__init__", cls.__init__)
    yield from _members(cls)


def _tuple_fields(cls: type) -> tuple[str, ...]:
    """Returns the names of the fields of a named tuple. Returns an empty tuple for any other class."""
    found: tuple[str, ...] = getattr(cls, "_fields", ()) if issubclass(cls, tuple) else ()
    return found


def _members(cls: type) -> Iterator[str]:
    """Yields the methods, properties and constants of a class. Members that other packages define are omitted."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] in PACKAGES:
            found |= vars(base)
    known = {*getattr(cls, "__dataclass_fields__", ()), *getattr(cls, "__members__", ()), *_tuple_fields(cls)}
    for name, member in sorted(found.items()):
        if name.startswith("_") or name in known or name.startswith("model_"):
            continue
        match member:
            case FunctionType():
                yield from _function("    ", name, member)
            case classmethod() | staticmethod():
                yield from _function(f"    {type(member).__name__} ", name, member.__func__)
            case property():
                yield f"    property {name}: {_annotation(inspect.get_annotations(member.fget).get('return', Any))}"
            case str() | int() | float() | tuple() | None:
                yield f"    {name} = {_value(member)}"
            case _:
                yield f"    {name}"


def _function(prefix: str, name: str, function: Callable[..., Any]) -> Iterator[str]:
    """Yields the signature of a function, and then the keys that `**kwargs: Unpack[...]` accepts."""
    signature = inspect.signature(function)
    parameters: list[str] = []
    keys: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in parameters):
            parameters.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        annotation = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
        parameters.append(f"{stars}{parameter.name}{annotation}{_default(parameter.default, parameter.empty)}")
        if annotation.startswith(": Unpack["):
            accepted = inspect.unwrap(function).__globals__[annotation[len(": Unpack[") : -1]]
            keys = [f"{key}: {_annotation(kind)}" for key, kind in inspect.get_annotations(accepted).items()]
    result = "" if signature.return_annotation is signature.empty else f" -> {_annotation(signature.return_annotation)}"
    keyword = "async def" if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else "def"
    indent = " " * (len(prefix) - len(prefix.lstrip()))
    line = f"{prefix}{keyword} {name}({', '.join(parameters)}){result}"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield f"{prefix}{keyword} {name}("
        yield from (f"{indent}    {parameter}," for parameter in parameters)
        yield f"{indent}){result}"
    yield from (f"{indent}    {key}" for key in keys)


def _written_annotation(cls: type, name: str) -> str:
    """Returns the annotation of a field as it is written in the source code."""
    return next(_annotation(found[name]) for base in cls.__mro__ if name in (found := inspect.get_annotations(base)))


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _type_name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _default(value: Any, missing: object) -> str:
    return "" if value is missing else f" = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value) if type(value).__str__ is Enum.__str__ else f"{type(value).__name__}.{value.name}"
    return f"{value.__qualname__}()" if isinstance(value, (type, FunctionType)) else repr(value)


def write_or_check(argv: Sequence[str] | None, files: Path, text_of: Callable[[str], str], hint: str) -> int:
    """Writes or checks one file for each package, and returns the exit code.

    Args:
        argv: the arguments of the program. Default: those of this process.
        files: the path of the files, with `{}` in place of the name of the package.
        text_of: returns the text of the file for a package.
        hint: what to do if a file is not current.
    """
    parser = argparse.ArgumentParser(description="Writes or checks a file for each package.")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="may be repeated; default: stepset")
    parser.add_argument("--check", action="store_true", help="fail with a diff if a file is not current")
    arguments = parser.parse_args(argv)
    found = ""
    for package in arguments.package or ["stepset"]:
        path, text = files.with_name(files.name.format(package)), text_of(package)
        if arguments.check:
            current = path.read_text(encoding="utf-8") if path.exists() else ""
            found += differences(current, text, f"docs/{path.parent.name}/{path.name}")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{found}{hint}\n" if found else "")
    return int(bool(found))


def main(argv: Sequence[str] | None = None, pages: Path = PAGES) -> int:
    """Writes or checks the snapshots, and returns the exit code."""
    hint = "The public API changed: run `make docs`, and add the change to CHANGELOG.md."
    return write_or_check(argv, pages / "{}.txt", lambda package: snapshot(import_module(package)), hint)


if __name__ == "__main__":
    sys.exit(main())
