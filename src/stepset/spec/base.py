"""The base class of the job file's models, which are frozen and reject unknown keys; types of their fields."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from stepset.spec.scalars import as_text, not_a_list, not_text, number, plain, reads_back

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler

_MAX_INT32 = 2**31 - 1  # counts, ports and restarts are int32 throughout the Kubernetes API


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `did you mean 'num_nodes'?`, or the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(names)}"


def validation_error(*problems: tuple[tuple[str | int, ...], str]) -> ValidationError:
    """Returns the error of a validator for several problems, each at a location relative to the validated value."""
    details = [
        InitErrorDetails(type=PydanticCustomError("refused", "{text}", {"text": text}), loc=place, input=None)
        for place, text in problems
    ]
    return ValidationError.from_exception_data("job", details)


class JobModel(BaseModel):
    """A part of the job file. Frozen; unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        known = cls.model_fields
        if isinstance(data, dict) and not data.keys() <= known.keys():
            unknown = [str(key) for key in data if key not in known]
            raise validation_error(*(((), f"unknown key {key!r}; {nearest(key, known)}") for key in unknown))
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Adds the docstrings of the fields as their descriptions."""
        from stepset.spec.field_docs import field_docs

        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            if name in properties:
                properties[name]["description"] = text
        return schema


def _reject_boolean(value: Any) -> Any:
    if isinstance(plain(value), bool):
        # Python counts True as 1, and YAML reads `yes` as True.
        raise ValueError(f"{value} is not a whole number; give one such as 2")
    return number(value)


def check_size(value: int) -> int:
    """Returns `value` if it is in the range of Kubernetes, else raises ValueError."""
    if value > _MAX_INT32:
        raise ValueError(f"{value} is more than Kubernetes allows; give {_MAX_INT32} or less")
    return value


MAX_PODS = 1_000_000
"""Maximum number of pods of a group, more than any cluster runs; targets have lower limits."""


def _check_count(value: int) -> int:
    if value > MAX_PODS:
        raise ValueError(f"{value} is more than a job supports; give {MAX_PODS} or less")
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"{not_a_list(value)}")
    if isinstance(value, (list, tuple)):
        # YAML reads an unquoted 3 as a number; an argument is always text.
        if wrong := [((index,), not_text(each)) for index, each in enumerate(value) if not _is_word(each)]:
            raise validation_error(*wrong)
        return [as_text(each) for each in value]
    return value


def _is_word(value: Any) -> bool:
    return isinstance(value, str) or (not isinstance(plain(value), bool) and reads_back(value))


def _names_a_program(words: list[str]) -> list[str]:
    if words and not words[0]:
        raise ValueError("its first word is empty; it must be the program")
    return words


AbsolutePath = Annotated[str, Field(pattern=r"^/")]
Whole = Annotated[int, BeforeValidator(_reject_boolean), AfterValidator(check_size)]
"""A whole number in the range of Kubernetes; `yes` and `true` are rejected."""
Switch = Annotated[bool, BeforeValidator(plain)]
"""A boolean, in any of YAML's forms."""
Count = Annotated[Whole, AfterValidator(_check_count)]
"""A number of pods."""
TextList = Annotated[list[str], BeforeValidator(_words)]
"""Words of a command; bare numbers are read as text."""
Command = Annotated[TextList, AfterValidator(_names_a_program)]
"""A program and its arguments."""
