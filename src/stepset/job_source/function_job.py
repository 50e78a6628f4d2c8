"""Creates the job that calls a Python function.

The job ships either the module that contains the function, or only the source of the function.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, NoneType
from typing import Any

from stepset.defaults import ENTRIES
from stepset.errors import BadInputError
from stepset.functions.module import module_program, source_with_modules
from stepset.functions.program import json_arguments, program_text
from stepset.functions.source import check_kind, checked_source, place_of
from stepset.job_source.module_files import packed_code, packed_directory, packed_imports, packed_module
from stepset.safe_names import slug
from stepset.sources import CODE_LIMIT
from stepset.spec.base import nearest


def function_fields(
    function: Callable[..., Any], fields: Mapping[str, Any], base_dir: Path | None = None
) -> dict[str, Any]:
    """Returns the fields of the job that calls a function in every rank.

    If the module of the function can be imported, the job ships the package that contains the module. If there is no
    package, the job ships the file of the module, and the modules that this file imports from its own directory. If the
    field `code` is given, the job instead ships the directory that this field specifies.

    If the function belongs to `__main__`, to a notebook cell or to another function, the job ships the source of the
    function, and modules that the function imports. These modules are in the directory of the file that defines the
    function. For a notebook cell, this is the current directory. If the field `code` is given, the job also ships the
    directory that this field specifies.

    Args:
        fields: the fields of the job. `args` is a list of positional arguments or a mapping of keyword arguments.
            `include` contains functions, classes and constants that are shipped with the source of the function.
        base_dir: the directory that `code` is relative to. Default: the current directory.

    Raises:
        BadInputError: the function or its module cannot be shipped, or the arguments do not fit the function.
    """
    if isinstance(function, partial):
        name = getattr(function.func, "__name__", "the function")
        raise BadInputError(
            f"job: functools.partial cannot be shipped; give the function {name}, and its arguments in args"
        )
    if not isinstance(function, FunctionType):
        raise BadInputError(f"job: {_unsuitable(function)}")
    if given := [entry for entry in ENTRIES if entry in fields]:
        raise BadInputError(f"{given[0]}: the job is the function {function.__name__}; leave {given[0]} out")
    check_kind(function)
    if not isinstance(code := fields.get("code"), (str, Path, NoneType)):
        raise BadInputError(f"code: {code!r} is not a directory; give the path of one directory")
    rest = {name: value for name, value in fields.items() if name not in ("args", "code", "include")}
    args, kwargs = arguments_of(function, fields.get("args", ()))
    if (size := len(json.dumps(json_arguments(args, kwargs)))) > CODE_LIMIT:
        raise BadInputError(
            f"args: the arguments have {size} bytes; at most {CODE_LIMIT} can be shipped; write the data to a file and"
            " give its path"
        )
    program = _program(function, code, base_dir or Path(), included_names(fields), args, kwargs)
    return {"name": slug(function.__name__), **rest, "function": program}


def included_names(fields: Mapping[str, Any]) -> Collection[object]:
    """Returns the value of `include` as a list. `include` can also be a single name, function or class."""
    named = fields.get("include") or ()
    return named if isinstance(named, (list, tuple, set)) else [named]


def _unsuitable(job: Callable[..., Any]) -> str:
    """Returns why an object that is not a plain function cannot be shipped, and the remedy. Contains no addresses."""
    name = getattr(job, "__name__", type(job).__name__)
    if isinstance(job, MethodType):
        return f"the method {name} cannot be shipped; define a function that creates the object and calls {name}"
    if isinstance(job, type):
        return f"the class {name} is not a function; define a function that creates the object"
    if isinstance(inspect.unwrap(job), FunctionType):
        return f"the function {name} is wrapped in an object of type {type(job).__name__}; remove the decorator"
    return f"{name} is not a function that is defined with def; define a function that calls it"


def _program(
    function: FunctionType,
    code: str | Path | None,
    base_dir: Path,
    include: Collection[object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> str:
    file = _module_file(function)
    if file is not None and include:
        raise BadInputError(
            f"include: the whole module {function.__module__} of {function.__name__} is shipped; leave include out"
        )
    if file is None:
        source = checked_source(function, include)
        directory = base_dir / code if code else None
        beside = packed_imports(source, _defined_in(function), directory)
        for packed in filter(None, (packed_directory(directory) if directory else None, beside)):
            source = source_with_modules(source, packed)
        return program_text(source, function.__name__, args, kwargs, place_of(function))
    module = function.__module__
    packed = packed_module(module, file) if code is None else packed_code(module, file, base_dir / code)
    return module_program(module, function.__name__, packed, args, kwargs)


def _module_file(function: FunctionType) -> Path | None:
    """Returns the file of the module that contains a function.

    Returns None if the ranks cannot import the function from its module.
    """
    module = sys.modules.get(function.__module__)
    if module is None or function.__module__ == "__main__":
        return None
    if getattr(module, function.__name__, None) is not function:
        return None
    file = getattr(module, "__file__", None)
    return Path(file) if file is not None and file.endswith(".py") else None


def _defined_in(function: FunctionType) -> Path | None:
    """Returns the file that defines a function. The modules of the function are in the directory of this file.

    For a function of a notebook cell, returns a path in the current directory. This file need not exist. Returns None
    for a function inside a package.
    """
    if "." in function.__module__:
        return None
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    return Path("__main__.py" if file is None else file).absolute()


def directory_of_imports(function: Callable[..., Any]) -> Path | None:
    """Returns the directory whose modules are shipped with the source of a function.

    Returns None if the function is shipped with its module, or belongs to a package.
    """
    if not isinstance(function, FunctionType) or _module_file(function) is not None:
        return None
    file = _defined_in(function)
    return None if file is None else file.parent


def _unknown_parameter(function: FunctionType, kwargs: Mapping[str, Any]) -> str:
    """Returns a message about the first keyword argument that a function does not have, or ""."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return ""
    unknown = next((name for name in kwargs if name not in parameters), None)
    if unknown is None:
        return ""
    only = next(iter(parameters)) if len(parameters) == 1 and len(kwargs) > 1 else ""
    whole = f"; to pass the mapping as {only}, give args=[{{...}}]" if only else ""
    return f"unknown parameter {unknown!r}; {nearest(unknown, parameters)}{whole}"


def arguments_of(function: FunctionType, given: object) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Returns the positional and the keyword arguments of a call. `given` is the field `args`.

    Raises:
        BadInputError: the arguments do not fit the function.
    """
    if isinstance(given, Mapping):
        args: Sequence[Any] = ()
        kwargs: Mapping[str, Any] = given
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes, bytearray)):
        args, kwargs = given, {}
    else:
        raise BadInputError(f"args: {given!r} is neither a list nor a mapping; give the function's arguments as one")
    if bad := [key for key in kwargs if not isinstance(key, str)]:
        raise BadInputError(f"args: the key {bad[0]!r} is not text; give the names of the function's parameters")
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise BadInputError(
            f"args: they do not fit {function.__name__}: {_unknown_parameter(function, kwargs) or error}"
        ) from error
    return args, kwargs
