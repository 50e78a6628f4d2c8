"""Loads a `TrainingJob` from YAML, JSON or a mapping. Error messages contain the names of the job file's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepset.errors import BadInputError
from stepset.regular_files import read_limited, similar_file
from stepset.spec.job import TrainingJob
from stepset.spec.options import KINDS
from stepset.spec.scalars import not_text, shortened

_NO_NUMBER = "{input} is not a whole number; give one such as 2"
_NO_SWITCH = "{input} is neither true nor false; write one of them"
_NO_MAPPING = "{input} is not a mapping; write {form}"
_ANY_FORM = "{key: value}"
_NO_LIST = "{input} is not a list; write [{form}]"
_EMPTY = "is empty; give a value or leave it out"
# Error type of pydantic -> stepset's error message, with advice for the user. {input} stands for the invalid value.
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
    "list_type": _NO_LIST,
    "dict_type": _NO_MAPPING,
    "model_type": _NO_MAPPING,
    "model_attributes_type": _NO_MAPPING,
    "literal_error": "{input} is not known; use {expected}",
    "string_too_short": _EMPTY,
    "too_short": _EMPTY,
    "string_pattern_mismatch": "{input} is not an absolute path; start it with '/'",
}
_FORMS = {
    "affinity": "{nodeAffinity: {...}}",
    "after": "fetch",
    "annotations": "{example.com/owner: vision}",
    "args": '"--epochs", "3"',
    "command": '"python3", "train.py"',
    "elastic": "{min_nodes: 1, max_nodes: 4}",
    "env": "{NAME: value}",
    "framework": "torch, or {kind: torch}",
    "labels": "{team: vision}",
    "launcher": "{node_selector: {pool: cpu}}",
    "network": "{port: 29500}",
    "node_selector": "{pool: gpu}",
    "pod_template": "{spec: {...}}",
    "rdzv_conf": "{read_timeout: 60}",
    "requirements": '"numpy"',
    "restart": "{max_restarts: 3}",
    "roles": "{name: fetch, command: [python3, fetch.py], before: true}",
    "scheduling": "{queue_name: team-a}",
    "storage": "{path: /data, claim: training-data}",
    "tolerations": "{key: nvidia.com/gpu, operator: Exists}",
    "topology": "{exclusive: topology.kubernetes.io/rack}",
    **dict.fromkeys(("requests", "limits"), "{cpu: 4, memory: 16Gi}"),
    **dict.fromkeys(("resources", "resources_per_node", "launcher_resources"), "{cpu: 4, memory: 16Gi, gpus: 1}"),
}
"""The name of a field that is a mapping or a list -> an example of its value, or of the items of its list."""
_UNION_TAGS = ("EnvText", "EnvSecret", "EnvField", "CodeDirectory", "CodeVolume", "HangOff", "HangTimes")
"""Names that pydantic adds to the locations of errors in unions. These names are not fields of the job file."""


_SURROGATE = re.compile("[\ud800-\udfff]")

MAX_FILE_SIZE = 4 * 1024 * 1024
"""The maximum size of a job file, in bytes."""


def parse_job(data: Mapping[str, Any], where: str = "") -> TrainingJob:
    """Converts a mapping to a `TrainingJob`.

    Args:
        data: the content of a job file.
        where: the prefix of error messages, such as the path of the file. By default, there is no prefix.

    Raises:
        BadInputError: the job is not valid. The error has one line for each problem.
    """
    try:
        if _has_unusable_text(data):
            raise BadInputError(*_unusable_texts(data, ""), where=where)
        return TrainingJob.model_validate(dict(data))
    except ValidationError as error:
        raise BadInputError(*problems(error), where=where) from error
    except RecursionError as error:
        raise BadInputError("has too many levels; nest values less deeply", where=where) from error


_UNKNOWN = object()
"""A value that no field accepts."""


def check_known_fields(data: Mapping[str, Any], unknown: Collection[str], where: str = "") -> None:
    """Checks a job in which the values of some fields are not available yet.

    Each field with an available value is checked. Rules that compare several fields of the job are checked only if
    `unknown` is empty.

    Args:
        data: the content of a job file. The values of the fields in `unknown` are ignored.
        unknown: the names of the fields that have no values yet.
        where: the prefix of error messages, such as the path of the file. By default, there is no prefix.

    Raises:
        BadInputError: a field that is not in `unknown` is invalid, or the job has a key that is not a field. The error
            has one line for each problem.
    """
    if not unknown:
        parse_job(data, where)
        return
    known = {key: value for key, value in data.items() if key not in unknown}
    try:
        if _has_unusable_text(known):
            raise BadInputError(*_unusable_texts(known, ""), where=where)
        TrainingJob.model_validate(known | dict.fromkeys(unknown, _UNKNOWN))
    except ValidationError as error:
        details = error.errors(include_url=False)
        if lines := _lines(detail for detail in details if detail["loc"][:1] not in {(field,) for field in unknown}):
            raise BadInputError(*lines, where=where) from error
    except RecursionError as error:
        raise BadInputError("has too many levels; nest values less deeply", where=where) from error


def _has_unusable_text(value: Any) -> bool:
    """Returns whether a value contains a string for which `_unusable_texts` yields a problem.

    This function is faster than `_unusable_texts`, because this function does not determine the paths of the strings.
    """
    if isinstance(value, str):
        return "\0" in value or (not value.isascii() and _SURROGATE.search(value) is not None)
    # These types are checked before Mapping, because isinstance is slow for Mapping.
    if isinstance(value, (int, float, list, tuple)):
        return isinstance(value, (list, tuple)) and any(map(_has_unusable_text, value))
    if isinstance(value, (dict, Mapping)):
        keys = any(not isinstance(key, str) or _has_unusable_text(key) for key in value)
        return keys or any(map(_has_unusable_text, value.values()))
    return False


def _unusable_texts(value: Any, place: str) -> Iterator[str]:
    """Yields one line for each invalid string or key in the content of a job file.

    A string is invalid if processes or API servers do not accept one of its characters. A key is invalid if it is not a
    string.
    """
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
    """Loads a `TrainingJob`.

    Args:
        source: the path of a YAML or JSON file, or a mapping. A `TrainingJob` is returned unchanged.

    Raises:
        BadInputError: the file cannot be read, the file is not valid YAML, or the job is not valid.
    """
    if isinstance(source, TrainingJob):
        return source
    if isinstance(source, Mapping):
        return parse_job(source)
    return parse_job(read_job_file(source), where=str(source))


def read_job_file(path: str | Path, text: str | None = None) -> Mapping[str, Any]:
    """Returns the content of a job file without checking the fields. `text` is the text of the file, if it is known.

    Raises BadInputError if the file cannot be read, or if its content is not a YAML or JSON mapping.
    """
    text = job_file_text(path) if text is None else text
    from stepset.spec.yamlfile import read_mapping  # only job files need the YAML parser

    return read_mapping(text, str(path))


def job_file_text(path: str | Path) -> str:
    """Returns the text of a job file. Raises BadInputError if the file cannot be read."""
    if not isinstance(path, (str, Path)):
        raise BadInputError(f"job: {path!r} is neither a mapping nor the path of a job file; give one of them")
    try:
        return read_limited(Path(path), MAX_FILE_SIZE, follow_links=True).decode("utf-8")
    except FileNotFoundError as error:
        raise BadInputError(f"no such file; {similar_file(Path(path)) or 'check the path'}", where=str(path)) from error
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise BadInputError("cannot be read: it is not UTF-8 text", where=str(path)) from error
    except ValueError as error:  # the path contains a NUL character
        raise BadInputError("is not a path; give that of a job file", where=repr(str(path))) from error


def problems(error: ValidationError) -> list[str]:
    """Returns one line for each problem in an error of pydantic.

    A line contains the path of the field, the invalid value and advice for the user.
    """
    return _lines(error.errors(include_url=False))


def _lines(details: Iterable[ErrorDetails]) -> list[str]:
    return list(dict.fromkeys(map(_line, details)))


def _line(detail: ErrorDetails) -> str:
    loc = detail["loc"]
    # Below `framework`, pydantic adds the kind to the location. The kind is not the name of a field.
    if loc[:1] == ("framework",) and loc[1:2] and loc[1] in KINDS:
        loc = (*loc[:1], *loc[2:])
    place = ".".join(str(part) for part in loc if part not in _UNION_TAGS and part != "[key]")
    message = _MESSAGES.get(detail["type"])
    if detail["type"] == "string_type":
        text = not_text(detail["input"])
    elif message and detail["input"] is None:
        text = "is null; give a value or leave it out"
    elif message:
        field = next((part for part in reversed(loc) if isinstance(part, str)), "")
        form = _FORMS.get(field, ".." if message is _NO_LIST else _ANY_FORM)
        form = _words(detail["input"]) or form if field == "args" and message is _NO_LIST else form
        text = message.format(input=_short(detail["input"]), form=form, **detail.get("ctx", {}))
        if detail["type"] == "string_pattern_mismatch" and detail["input"].startswith("~"):
            text += ", because '~' is not expanded"
    else:
        text = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def _words(args: Any) -> str:
    """Returns the items of a list for a mapping of options, or "" if the value is not such a mapping.

    >>> _words({"--lr": 0.1, "--amp": True})
    '"--lr", "0.1", "--amp"'
    """
    if not isinstance(args, Mapping) or not all(isinstance(each, (str, int, float)) for each in args.values()):
        return ""
    words = [str(word) for name, value in args.items() for word in ((name,) if value is True else (name, value))]
    return shortened(json.dumps(words)[1:-1])


def not_a_mapping(field: str, value: Any) -> str:
    """Returns the error message for a value of the field `field`, which must be a mapping.

    >>> not_a_mapping("restart", 3)
    'restart: 3 is not a mapping; write {max_restarts: 3}'
    """
    return f"{field}: {_NO_MAPPING.format(input=_short(value), form=_FORMS.get(field, _ANY_FORM))}"


def _short(value: Any) -> str:
    return shortened(repr(value) if not isinstance(value, bool) else str(value).lower())
