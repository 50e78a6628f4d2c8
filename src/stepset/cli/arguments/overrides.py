"""Changes to fields of a job file from the command line, before the model checks the result. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from stepset.errors import BadInputError
from stepset.spec.scalars import Scalar, plain, text_of

_DEEPEST = 100
_INDEX_DIGITS = 10
# A dot between keys; `\.` is a dot within one.
_DOT = re.compile(r"(?<!\\)\.")


def parse_setting(text: str) -> tuple[tuple[str, ...], Any]:
    """Returns (path, value) of a `--set PATH=VALUE`, with the value read as YAML; BadInputError if invalid.

    >>> parse_setting("framework.elastic.min_nodes=1")
    (('framework', 'elastic', 'min_nodes'), 1)

    A boolean, number or date is a Scalar, so that an error can show how a shell passes it as text.
    """
    import yaml

    from stepset.spec.yamlfile import read_yaml

    path, equals, value = text.partition("=")
    keys = tuple(key.replace("\\.", ".") for key in _DOT.split(path))
    if not equals or not all(keys):
        raise BadInputError(f"--set: {text!r} is not PATH=VALUE; write it like restart.max_restarts=3")
    if len(keys) > _DEEPEST:
        raise BadInputError(f"--set: the path {path!r} has more than {_DEEPEST} keys; a job file has fewer levels")
    try:
        return keys, _with_source(path, read_yaml(value))
    except (yaml.YAMLError, ValueError) as error:
        raise BadInputError(f"--set: the value of {path!r} is not readable as YAML; quote it: {value!r}") from error


def _with_source(path: str, value: Any) -> Any:
    source = value.source if isinstance(value, Scalar) else text_of(value)
    if source is None:
        return value
    return Scalar(plain(value), source, f"--set {shlex.quote(f'{path}={json.dumps(source)}')}")


def parse_env(assignments: Iterable[str]) -> dict[str, str]:
    """Returns name -> value of `NAME=VALUE` words; BadInputError for a word without a name or `=`."""
    env = {}
    for word in assignments:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInputError(f"--env: {word!r} is not NAME=VALUE; write it like LR=0.1")
        env[name] = value
    return env


def with_field(data: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Returns a job file's content with one field changed; the value None removes the field.

    Args:
        path: keys from the outside in; a number selects an item of a list; the length of the list appends an item.
    """
    if len(path) > 1 and path[0] == "framework" and isinstance(data.get("framework", "torch"), str):
        # `framework: torch` is short for a mapping.
        data = {**data, "framework": {"kind": data.get("framework", "torch")}}
    changed = _changed(data, path, value, ".".join(path))
    assert isinstance(changed, dict)
    return changed


def _changed(node: Any, path: tuple[str, ...], value: Any, whole: str) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if node is None:
        node = {}
    if isinstance(node, Mapping):
        new = _changed(node.get(key), rest, value, whole)
        kept = {k: v for k, v in node.items() if k != key or new is not None}
        return kept if new is None else {**kept, key: new}
    if isinstance(node, list):
        return _changed_item(node, key, rest, value, whole)
    raise BadInputError(f"{whole}: {key!r} lies within {node!r}, which is neither a mapping nor a list")


def _changed_item(items: list[Any], key: str, rest: tuple[str, ...], value: Any, whole: str) -> list[Any]:
    # int() rejects characters such as "²", and texts of more than 4,300 digits.
    if not (key.isdecimal() and len(key) < _INDEX_DIGITS) or int(key) > len(items):
        raise BadInputError(f"{whole}: {key!r} is not an index of a list of {len(items)}; give 0 to {len(items)}")
    at = int(key)
    new = _changed(items[at] if at < len(items) else None, rest, value, whole)
    return [*items[:at], *([] if new is None else [new]), *items[at + 1 :]]
