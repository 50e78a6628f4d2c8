"""Converts the fields of a dataclass to flags of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_origin, get_type_hints

Command = Callable[..., int]


def with_signature(command: Command, parameters: list[inspect.Parameter], model: Command) -> Command:
    """Returns `command` with a new signature, and with the name and the docstring of `model`.

    typer reads the signature to determine the flags of a command.
    """
    command.__name__, command.__doc__ = model.__name__, model.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect.signature
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def with_flags(command: Command, name: str, model: type) -> Command:
    """Returns a command that has a parameter for each field of a dataclass.

    Args:
        command: a command with a parameter whose type is the dataclass.
        model: the dataclass. Only fields with Annotated types become parameters.
    """
    hints = get_type_hints(model, include_extras=True)
    flags = {
        f.name: inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(model)
        if get_origin(hints[f.name]) is Annotated
    }

    def call(**values: Any) -> int:
        given = {flag: values.pop(flag) for flag in flags}
        return command(**{name: model(**given)}, **values)

    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        own = each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += flags.values() if each.name == name else [own]
    return with_signature(call, parameters, command)
