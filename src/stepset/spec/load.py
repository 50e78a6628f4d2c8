"""Loads a TrainingJob from YAML, JSON or a mapping; errors name the fields of the job file."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepset.errors import BadInputError
from stepset.regular_files import open_regular
from stepset.spec.job import TrainingJob
from stepset.spec.options import KINDS
from stepset.spec.scalars import not_text, shortened

_NO_NUMBER = "{input} is not a whole number; give one such as 2"
_NO_SWITCH = "{input} is neither true nor false; write one of them"
_NO_MAPPING = "{input} is not a mapping; write {{key: value}}"
_EMPTY = "is empty; give a value or leave it out"
# pydantic's error type -> stepset's text of what is wrong and what to do; {input} is the value.
_MESSAGES = {
    "missing": "is missing; it must be given",
    "greater_than_equal": "{input} is too small; give {ge} or more",
    "less_than_equal": "{input} is too large; give {le} or less",
    "int_parsing": _NO_NUMBER,
    "int_parsing_size": _NO_NUMBER,
    "int_type": _NO_NUMBER,
    "int_from_float": _NO_NUMBER,
    "finite_number": _NO_NUMBER,
    "string_unicode": "{input} is not Unicode text; write it without surrogates",
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


_SURROGATE = re.compile("[\ud800-\udfff]")

MAX_FILE_SIZE = 4 * 1024 * 1024
"""Maximum size of a job file, in bytes."""


def parse_job(data: Mapping[str, Any], where: str = "") -> TrainingJob:
    """Returns the TrainingJob of a mapping.

    Args:
        data: the job file's content.
        where: the prefix of errors, such as the file's path; default: none.

    Raises:
        BadInputError: the job is not valid; one line for each problem.
    """
    try:
        if _has_unusable_text(data):
            raise BadInputError(*_unusable_texts(data, ""), where=where)
        return TrainingJob.model_validate(dict(data))
    except ValidationError as error:
        raise BadInputError(*problems(error), where=where) from error
    except RecursionError as error:
        raise BadInputError("has too many levels; nest values less deeply", where=where) from error


def _has_unusable_text(value: Any) -> bool:
    """Whether `_unusable_texts` yields anything, without the cost of naming each place."""
    if isinstance(value, str):
        return "\0" in value or (not value.isascii() and _SURROGATE.search(value) is not None)
    if isinstance(value, (int, float, list, tuple)):  # before Mapping, whose check is slow
        return isinstance(value, (list, tuple)) and any(map(_has_unusable_text, value))
    if isinstance(value, (dict, Mapping)):
        keys = any(not isinstance(key, str) or _has_unusable_text(key) for key in value)
        return keys or any(map(_has_unusable_text, value.values()))
    return False


def _unusable_texts(value: Any, place: str) -> Iterator[str]:
    """Yields a problem for each text that no process and no API server accepts, and each key that is not text."""
    if isinstance(value, str):
        if "\0" in value:
            yield f"{place}: {_short(value)} contains a NUL character; remove it"
        elif not value.isascii() and _SURROGATE.search(value):
            yield f"{place}: {_MESSAGES['string_unicode'].format(input=_short(value))}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{place}: the key {not_text(key)}" if place else f"the key {not_text(key)}"
                continue
            yield from _unusable_texts(key, f"{place}: a key" if place else "a key")
            yield from _unusable_texts(inner, f"{place}.{_short(key)[1:-1]}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _unusable_texts(inner, f"{place}.{index}")


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
        text = _read(Path(path))
    except FileNotFoundError as error:
        raise BadInputError("no such file; check the path", where=str(path)) from error
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise BadInputError("cannot be read: it is not UTF-8 text", where=str(path)) from error
    except ValueError as error:  # NUL
        raise BadInputError("is not a path; give that of a job file", where=repr(str(path))) from error
    from stepset.spec.yamlfile import read_mapping  # a job that is not a file needs no YAML

    return read_mapping(text, str(path))


def _read(path: Path) -> str:
    """Returns the text of a file; raises OSError if it is not regular, or too large."""
    with BufferedReader(open_regular(path, follow_links=True)) as file:
        data: bytes | None = file.read(MAX_FILE_SIZE + 1)
    if data is None:  # a file of /proc that waits for messages
        raise OSError(errno.EINVAL, "has no content at present", str(path))
    if len(data) > MAX_FILE_SIZE:
        raise OSError(errno.EFBIG, f"has more than {MAX_FILE_SIZE} bytes", str(path))
    return data.decode("utf-8")


def problems(error: ValidationError) -> list[str]:
    """One line for each problem that pydantic found: field, value, remedy."""
    lines = [_line(detail) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(lines))


def _line(detail: ErrorDetails) -> str:
    loc = detail["loc"]
    if loc[:1] == ("framework",) and loc[1:2] and loc[1] in KINDS:  # the union's tag, which is not a field
        loc = (*loc[:1], *loc[2:])
    place = ".".join(str(part) for part in loc if part not in _UNION_TAGS and part != "[key]")
    message = _MESSAGES.get(detail["type"])
    if detail["type"] == "string_type":
        text = not_text(detail["input"])
    elif message:
        text = message.format(input=_short(detail["input"]), **detail.get("ctx", {}))
    else:
        text = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def _short(value: Any) -> str:
    return shortened(repr(value))
