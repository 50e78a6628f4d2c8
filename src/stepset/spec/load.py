"""From YAML, JSON or a mapping to a TrainingJob, with errors in the job file's terms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepset.errors import BadInputError
from stepset.spec.job import TrainingJob
from stepset.spec.options import KINDS
from stepset.spec.yamlfile import read_mapping

# pydantic's error type -> stepset's text of what is wrong and what to do; {input} is the value.
_NO_NUMBER = "{input} is not a whole number; give one such as 2"
_NO_SWITCH = "{input} is neither true nor false; write one of them"
_NO_MAPPING = "{input} is not a mapping; write {{key: value}}"
_EMPTY = "is empty; give a value or leave it out"
_WORDS = {
    "missing": "is missing; it must be given",
    "greater_than_equal": "{input} is too small; give {ge} or more",
    "less_than_equal": "{input} is too large; give {le} or less",
    "int_parsing": _NO_NUMBER,
    "int_parsing_size": _NO_NUMBER,
    "int_type": _NO_NUMBER,
    "int_from_float": _NO_NUMBER,
    "finite_number": _NO_NUMBER,
    "string_type": "{input} is not text; quote it",
    "string_unicode": "{input} is not Unicode text; write it without half characters (surrogates)",
    "bool_parsing": _NO_SWITCH,
    "bool_type": _NO_SWITCH,
    "list_type": "{input} is not a list; write [..]",
    "dict_type": _NO_MAPPING,
    "model_type": _NO_MAPPING,
    "model_attributes_type": _NO_MAPPING,
    "literal_error": "{input} is not known; use {expected}",
    "string_too_short": _EMPTY,
    "too_short": _EMPTY,
    "string_pattern_mismatch": "{input} is not an absolute path; start it with '/'",
}
_UNION_TAGS = ("EnvText", "EnvSecret", "EnvField")
"""Names of union members that pydantic adds to an error's place; the job file does not have them."""


def parse_job(data: Mapping[str, Any], where: str = "") -> TrainingJob:
    """Returns the TrainingJob of a mapping.

    Args:
        data: the job file's content.
        where: the prefix of errors, such as the file's path; default: none.

    Raises:
        BadInputError: the job is not valid; one line for each problem.
    """
    try:
        return TrainingJob.model_validate(dict(data))
    except ValidationError as error:
        raise BadInputError(*problems(error), where=where) from error


def load_job(source: str | Path | Mapping[str, Any] | TrainingJob) -> TrainingJob:
    """Returns the TrainingJob of a YAML or JSON file or of a mapping; returns a TrainingJob unchanged.

    Raises:
        BadInputError: the file cannot be read or is not valid YAML, or the job is not valid.
    """
    if isinstance(source, TrainingJob):
        return source
    if isinstance(source, Mapping):
        return parse_job(source)
    return parse_job(read_job_file(source), where=str(source))


def read_job_file(path: str | Path) -> Mapping[str, Any]:
    """Returns a job file's unchecked content; BadInputError if it is not a YAML or JSON mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInputError("no such file; check the path", where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise BadInputError(f"cannot be read: {reason}", where=str(path)) from error
    return read_mapping(text, str(path))


def problems(error: ValidationError) -> list[str]:
    """One line for each problem that pydantic found: field, value, remedy."""
    lines = [_line(detail) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(lines))


def _line(detail: ErrorDetails) -> str:
    loc = detail["loc"]
    if loc[:1] == ("framework",) and loc[1:2] and loc[1] in KINDS:  # the union's tag, which is not a field
        loc = (*loc[:1], *loc[2:])
    place = ".".join(str(part) for part in loc if part not in _UNION_TAGS and part != "[key]")
    words = _WORDS.get(detail["type"])
    if words:
        text = words.format(input=_short(detail["input"]), **detail.get("ctx", {}))
    else:
        text = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
