"""The base of every model of the job file: frozen, and unknown keys are errors that name the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

_LARGEST = 2**31 - 1  # counts, ports and restarts are int32 throughout the Kubernetes API


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `did you mean 'num_nodes'?`, or the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(names)}"


def refused(*problems: tuple[tuple[str | int, ...], str]) -> ValidationError:
    """The error of a validator that found several problems, each at its own place below the validated value."""
    details = [
        InitErrorDetails(type=PydanticCustomError("refused", "{text}", {"text": text}), loc=place, input=None)
        for place, text in problems
    ]
    return ValidationError.from_exception_data("job", details)


class JobModel(BaseModel):
    """A part of the job file. Frozen; unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        known = cls.model_fields
        if isinstance(data, dict) and (unknown := [str(key) for key in data if key not in known]):
            raise refused(*(((), f"unknown key {key!r}; {nearest(key, known)}") for key in unknown))
        return data


def _not_a_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        # Python counts True as 1, and YAML reads `yes` as True.
        raise ValueError(f"{value} is not a whole number; give one such as 2")
    return value


def check_size(value: int) -> int:
    """Returns `value` if it is in the range of Kubernetes, else raises ValueError."""
    if value > _LARGEST:
        raise ValueError(f"{value} is more than Kubernetes can count; give {_LARGEST} or less")
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"{value!r} is one text; give a list, such as [{value!r}]")
    if isinstance(value, (list, tuple)):
        # YAML reads an unquoted 3 as a number; an argument is always text.
        return [str(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v for v in value]
    return value


def _names_a_program(words: list[str]) -> list[str]:
    if words and not words[0]:
        raise ValueError("its first word is empty; name the program there")
    return words


AbsolutePath = Annotated[str, Field(pattern=r"^/")]
Whole = Annotated[int, BeforeValidator(_not_a_truth_value), AfterValidator(check_size)]
"""A whole number in the range of Kubernetes; `yes` and `true` are rejected."""
TextList = Annotated[list[str], BeforeValidator(_words)]
"""Words of a command; bare numbers are read as text."""
Command = Annotated[TextList, AfterValidator(_names_a_program)]
"""A program and its arguments."""
