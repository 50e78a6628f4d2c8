"""From YAML, JSON or a mapping to a TrainingJob, with errors in the job file's own words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepset.errors import BadInputError
from stepset.spec.job import TrainingJob

# pydantic's error type -> what is wrong and what to do, in our words; {input} is the value.
_WORDS = {
    "missing": "is missing; it must be given",
    "greater_than_equal": "{input} is too small; give {ge} or more",
    "less_than_equal": "{input} is too large; give {le} or less",
    "int_parsing": "{input!r} is not a whole number",
    "int_type": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "string_type": "{input!r} is not text; quote it",
    "bool_parsing": "{input!r} is neither true nor false",
    "bool_type": "{input!r} is neither true nor false",
    "list_type": "{input!r} is not a list; write [..]",
    "dict_type": "{input!r} is not a mapping; write {{key: value}}",
    "model_type": "{input!r} is not a mapping; write {{key: value}}",
    "model_attributes_type": "{input!r} is not a mapping; write {{key: value}}",
    "literal_error": "{input!r} is not known; use {expected}",
    "string_too_short": "is empty; give a value or leave it out",
    "too_short": "is empty; give a value or leave it out",
    "string_pattern_mismatch": "{input!r} is not an absolute path; start it with '/'",
}
# Names of union members that pydantic puts into an error's place; they are not the user's words.
_UNION_TAGS = ("function-", "constrained-", "literal[", "nullable[", "lax-or-strict", "json-or-python")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """Safe YAML in which a key given twice is an error instead of a silent last-one-wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def parse_job(data: Mapping[str, Any], where: str = "") -> TrainingJob:
    """A TrainingJob from a mapping.

    Args:
        data: the job file's content.
        where: what to call it in errors, such as the file's path.

    Raises:
        BadInputError: one line for each thing that is wrong.
    """
    try:
        return TrainingJob.model_validate(dict(data))
    except ValidationError as error:
        raise BadInputError(*problems(error), where=where) from error


def load_job(source: str | Path | Mapping[str, Any] | TrainingJob) -> TrainingJob:
    """A TrainingJob from a YAML or JSON file, a mapping, or itself.

    Raises:
        BadInputError: the file cannot be read, is not YAML, or does not describe a job.
    """
    if isinstance(source, TrainingJob):
        return source
    if isinstance(source, Mapping):
        return parse_job(source)
    return parse_job(read_job_file(source), where=str(source))


def read_job_file(path: str | Path) -> Mapping[str, Any]:
    """What a YAML or JSON job file holds, not yet checked against the model.

    Raises:
        BadInputError: the file cannot be read, is not YAML, or is no mapping with text for keys.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInputError("no such file; check the path", where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise BadInputError(f"cannot be read: {reason}", where=str(path)) from error
    return _mapping_of(text, str(path))


def _mapping_of(text: str, where: str) -> Mapping[str, Any]:
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise BadInputError(f"{place}not readable as YAML: {error.problem}", where=where) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"not readable as YAML: {' '.join(str(error).split())}", where=where) from error
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise BadInputError(f"holds {found}; a job file is a mapping of fields such as 'script: train.py'", where=where)
    if bad := [k for k in data if not isinstance(k, str)]:
        raise BadInputError(f"the key {bad[0]!r} is not text; quote it", where=where)
    return data


def problems(error: ValidationError) -> list[str]:
    """One line for each thing pydantic found wrong: field, value, remedy."""
    lines = [_line(detail) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(lines))


def _line(detail: ErrorDetails) -> str:
    loc = detail["loc"]
    if loc[:1] == ("framework",):  # the discriminator's tag stands second and is not a field
        loc = (*loc[:1], *loc[2:])
    place = ".".join(str(part) for part in loc if not _is_union_tag(part))
    words = _WORDS.get(detail["type"])
    if words:
        text = words.format(input=_short(detail["input"]), **detail.get("ctx", {}))
    else:
        text = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def _is_union_tag(part: int | str) -> bool:
    if isinstance(part, int):
        return False
    return part in ("EnvText", "EnvSecret", "EnvField", "[key]") or part.startswith(_UNION_TAGS)


def _short(value: Any) -> Any:
    text = repr(value)
    return value if len(text) <= 80 else f"{text[:77]}..."
