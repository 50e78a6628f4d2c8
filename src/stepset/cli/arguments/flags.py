"""Commands that take the fields of a dataclass as flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_origin, get_type_hints

Command = Callable[..., int]


def with_signature(command: Command, parameters: list[inspect.Parameter], model: Command) -> Command:
    """Sets the parameters of a command, which typer reads, and copies the name and the help of `model`."""
    command.__name__, command.__doc__ = model.__name__, model.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect.signature
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def with_flags(command: Command, name: str, model: type) -> Command:
    """Replaces the parameter `name` of a command, whose type is `model`, by the Annotated fields of that dataclass."""
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
