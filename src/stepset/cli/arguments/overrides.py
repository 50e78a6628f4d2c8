"""Applies flags of the command line to the content of a job file. Later the model checks the changed content."""

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
# Matches a dot that separates two keys. `\.` is a dot within a key.
_DOT = re.compile(r"(?<!\\)\.")


def parse_setting(text: str) -> tuple[tuple[str, ...], Any]:
    """Returns the path and the value of `--set PATH=VALUE`. The value is read as YAML.

    >>> parse_setting("framework.elastic.min_nodes=1")
    (('framework', 'elastic', 'min_nodes'), 1)

    A boolean, a number or a date is returned as a Scalar. Then an error message can show how to pass the value as a
    string in a shell. Raises BadInputError if `text` is invalid.
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


def parse_env(assignments: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Converts words of the form `NAME=VALUE` or `NAME` to a mapping from names to values.

    If a word has the form `NAME`, the value is the value of the variable NAME in `environ`. Raises BadInputError if a
    word has no name, or if `environ` does not contain the variable.

    >>> parse_env(["LR=0.1", "HF_HOME"], {"HF_HOME": "/data"})
    {'LR': '0.1', 'HF_HOME': '/data'}
    """
    env = {}
    for word in assignments:
        name, equals, value = word.partition("=")
        if not name:
            raise BadInputError(f"--env: {word!r} is not NAME=VALUE; write it like LR=0.1")
        if not equals and name not in environ:
            raise BadInputError(f"--env: {word!r} is not set in this shell; export it, or write it like LR=0.1")
        env[name] = value if equals else environ[name]
    return env


def parse_labels(assignments: Iterable[str]) -> dict[str, str]:
    """Converts words of the form `KEY=VALUE` to a mapping. Raises BadInputError for a word of another form.

    >>> parse_labels(["team=vision", "debug="])
    {'team': 'vision', 'debug': ''}
    """
    labels = {}
    for word in assignments:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise BadInputError(f"--label: {word!r} is not KEY=VALUE; write it like team=vision")
        labels[key] = value
    return labels


def parse_hang(text: str) -> str | dict[str, str]:
    """Returns the value of the field `hang` for the value of `--hang`.

    >>> parse_hang("after=60s,action=fail"), parse_hang("off")
    ({'after': '60s', 'action': 'fail'}, 'off')

    Raises BadInputError if the text is neither `off` nor a list of values. The model checks the names and the values.
    """
    if text == "off":
        return text
    values = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not name or not equals:
            raise BadInputError(f"--hang: {word!r} has no value; write it like after=60s,first=10m,action=fail, or off")
        values[name] = value
    return values


def with_field(data: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Returns a copy of the content of a job file with one changed field. The value None removes the field.

    Args:
        path: the keys of the field, beginning with the outermost key. The key of an item in a list is the index of the
            item. If the index equals the length of the list, the value is appended.
        value: the new value of the field.
    """
    if len(path) > 1 and path[0] == "framework" and isinstance(data.get("framework", "torch"), str):
        # `framework: torch` is short for `framework: {kind: torch}`.
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
    # `int` rejects characters such as "²", and strings of more than 4,300 digits.
    if not (key.isdecimal() and len(key) < _INDEX_DIGITS) or int(key) > len(items):
        raise BadInputError(f"{whole}: {key!r} is not an index of a list of {len(items)}; give 0 to {len(items)}")
    at = int(key)
    new = _changed(items[at] if at < len(items) else None, rest, value, whole)
    return [*items[:at], *([] if new is None else [new]), *items[at + 1 :]]


def with_resource(data: Mapping[str, Any], name: str, amount: Any) -> dict[str, Any]:
    """Returns a copy of the content of a job file. In the copy, `amount` is the amount of the resource `name` per node.

    If the job file contains separate requests and limits, the amount is set in the requests and in the limits.

    >>> with_resource({"resources_per_node": {"limits": {"nvidia.com/gpu": 1}}}, "gpus", 2)
    {'resources_per_node': {'limits': {'gpus': 2}, 'requests': {'gpus': 2}}}
    """
    given = data.get("resources_per_node")
    full = {"gpus": "nvidia.com/gpu"}.get(name)
    apart = isinstance(given, Mapping) and bool({"requests", "limits"} & given.keys())
    for place in (("limits",), ("requests",)) if apart else ((),):
        if full is not None:  # a job must not contain both names of the resource
            data = with_field(data, ("resources_per_node", *place, full), None)
        data = with_field(data, ("resources_per_node", *place, name), amount)
    return dict(data)
