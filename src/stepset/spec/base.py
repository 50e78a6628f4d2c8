"""The base class of the models of a job file, and types of fields that several models use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from stepset.spec.scalars import as_text, not_a_list, not_text, number, plain, reads_back, shortened

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_KNOWN = "known keys: "
_MAX_INT32 = 2**31 - 1  # counts, ports and restarts are int32 in the Kubernetes API


def snake_case(key: str) -> str:
    """Returns a key such as `nodeSelector` or `node-selector` in the spelling of a job file: `node_selector`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", key).lower()


def did_you_mean(name: str | None) -> str:
    """Returns the hint for a key that was written instead of `name`, or "" if no name is known."""
    return f"did you mean {name!r}?" if name else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an unknown name.

    If a known name is similar, or is the only one that starts with `name`, the hint is a question such as
    `did you mean 'num_nodes'?`. Otherwise, the hint lists all known names.

    >>> nearest("procs", ["procs_per_node", "roles"])
    "did you mean 'procs_per_node'?"
    """
    names = sorted(known)
    longer = [each for each in names if each.startswith(f"{name}_")]
    close = longer if len(longer) == 1 else difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return did_you_mean(close[0]) if close else f"{_KNOWN}{', '.join(names)}"


def unknown_keys(
    unknown: Iterable[str], known: Iterable[str], elsewhere: Callable[[str], str] = lambda key: ""
) -> list[str]:
    """Returns a message for each unknown key for which there is a hint, and one message for all other keys.

    Args:
        elsewhere: a function that returns a hint for a key that belongs to another place, or "". By default, the only
            hints are similar known keys.

    >>> unknown_keys(["num_node", "x", "y"], ["num_nodes", "script"])
    ["unknown key 'num_node'; did you mean 'num_nodes'?", "unknown keys 'x', 'y'; known keys: num_nodes, script"]
    """
    hints = {key: elsewhere(key) or nearest(key, known) for key in unknown}
    others = [repr(key) for key, hint in hints.items() if hint.startswith(_KNOWN)]
    messages = [f"unknown key {key!r}; {hint}" for key, hint in hints.items() if repr(key) not in others]
    if others:
        several = "s" if len(others) > 1 else ""
        messages.append(f"unknown key{several} {', '.join(others)}; {_KNOWN}{', '.join(sorted(known))}")
    return messages


def problems_of_keys(model: type[BaseModel], data: Any, elsewhere: Callable[[str], str] = lambda key: "") -> list[str]:
    """Returns the messages about the keys of the mapping `data` that are not fields of the model.

    Args:
        elsewhere: as for `unknown_keys`.
    """
    known = model.model_fields
    if not isinstance(data, dict) or data.keys() <= known.keys():
        return []
    return unknown_keys((str(key) for key in data if key not in known), known, elsewhere)


def validation_error(*problems: tuple[tuple[str | int, ...], str]) -> ValidationError:
    """Returns an error that a validator can raise to report several problems.

    Args:
        problems: pairs of a location and a message. The location is relative to the validated value.
    """
    return ValidationError.from_exception_data("job", [_detail(place, text) for place, text in problems])


def _detail(place: tuple[str | int, ...], text: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("refused", "{text}", {"text": text}), loc=place, input=None)


def with_other_problems(texts: Iterable[str], error: ValidationError) -> ValidationError:
    """Returns an error that reports `texts`, and the problems in the values of single fields from `error`.

    Rules for several fields are omitted, because an unknown key may be the misspelt name of a field.
    """
    details = [_detail((), text) for text in texts]
    for other in error.errors(include_url=False):
        if other["type"] == "refused":
            details.append(_detail(other["loc"], other["msg"]))
        elif other["loc"]:
            known = InitErrorDetails(type=other["type"], loc=other["loc"], input=other["input"])
            details.append({**known, "ctx": other["ctx"]} if "ctx" in other else known)
    return ValidationError.from_exception_data("job", details)


class JobModel(BaseModel):
    """The base class of the models of a job file. Models are immutable and reject unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)
    _other_names: ClassVar[Mapping[str, str]] = {}
    """The fields that are meant by keys of Kubernetes or of other tools. The keys are in snake case."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        names = cls._other_names
        if unknown := problems_of_keys(cls, data, lambda key: did_you_mean(names.get(snake_case(key)))):
            raise validation_error(*(((), text) for text in unknown))
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Returns the schema of the model. The docstrings below the fields become the descriptions of the fields."""
        from stepset.spec.field_docs import field_docs

        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            if name in properties:
                properties[name]["description"] = text
        return schema


def _reject_boolean(value: Any) -> Any:
    if isinstance(plain(value), bool):
        # In Python, True is equal to 1. YAML reads `yes` as True.
        raise ValueError(f"{value} is not a whole number; give one such as 2")
    return number(value)


def check_size(value: int) -> int:
    """Returns `value`. Raises ValueError if `value` is larger than an int32."""
    if value > _MAX_INT32:
        raise ValueError(f"{value} is more than Kubernetes allows; give {_MAX_INT32} or less")
    return value


MAX_PODS = 1_000_000
"""The maximum number of pods in a group. No cluster has so many pods. The targets have lower limits."""


def _check_count(value: int) -> int:
    if value > MAX_PODS:
        raise ValueError(f"{value} is more than a job supports; give {MAX_PODS} or less")
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"{not_a_list(value)}")
    if isinstance(value, (list, tuple)):
        # YAML reads an unquoted 3 as a number, but an argument of a command is always a string.
        if wrong := [((index,), not_text(each)) for index, each in enumerate(value) if not _is_word(each)]:
            raise validation_error(*wrong)
        return [as_text(each) for each in value]
    return value


def _is_word(value: Any) -> bool:
    return isinstance(value, str) or (not isinstance(plain(value), bool) and reads_back(value))


def _names_a_program(words: list[str]) -> list[str]:
    if words and not words[0]:
        raise ValueError("its first word is empty; it must be the program")
    if words and _ASSIGNMENT.match(words[0]):
        raise ValueError(
            f"its first word is {shortened(repr(words[0]))}, which only a shell takes for a variable; set the variable"
            ' in env, or write "env" before it'
        )
    return words


AbsolutePath = Annotated[str, Field(pattern=r"^/")]
Whole = Annotated[int, BeforeValidator(_reject_boolean), AfterValidator(check_size)]
"""A whole number that the Kubernetes API allows. The booleans `yes` and `true` are rejected."""
Switch = Annotated[bool, BeforeValidator(plain)]
"""A boolean in any form that YAML allows."""
Count = Annotated[Whole, AfterValidator(_check_count)]
"""A number of pods."""
TextList = Annotated[list[str], BeforeValidator(_words)]
"""The words of a command. Numbers without quotes are converted to strings."""
Command = Annotated[TextList, AfterValidator(_names_a_program)]
"""A program and its arguments."""
