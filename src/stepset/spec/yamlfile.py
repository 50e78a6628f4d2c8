"""Reads YAML and JSON; a duplicate key is an error, and a value that does not read back as written keeps its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from stepset.errors import BadInputError
from stepset.spec.scalars import not_text, scalar

_Safe: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times as fast
_MERGE = "tag:yaml.org,2002:merge"


_MAX_DEPTH = 100
"""Maximum depth of a job file: the parser needs stack for each level, and would crash without a message."""
_MAX_VALUES = 200_000
"""Maximum number of values of a job file. Each use of an alias counts: nine lines can expand to a billion values."""


_MAX_NUMBER = 1000
"""Maximum characters of a number: PyYAML reads one of base 60, such as 1:30:00, in quadratic time."""


class _Loader(_Safe):  # type: ignore[misc, valid-type]  # its base is chosen at run time
    """Safe YAML that rejects a duplicate key, where PyYAML silently takes the last value."""

    def construct_float(self, node: yaml.ScalarNode) -> Any:
        _check_length(node)
        return scalar(self.construct_yaml_float(node), node.value)

    def construct_int(self, node: yaml.ScalarNode) -> Any:
        _check_length(node)
        return scalar(self.construct_yaml_int(node), node.value)

    def construct_bool(self, node: yaml.ScalarNode) -> Any:
        return scalar(self.construct_yaml_bool(node), node.value)

    def construct_timestamp(self, node: yaml.ScalarNode) -> Any:
        return scalar(self.construct_yaml_timestamp(node), node.value)

    def construct_document(self, node: yaml.Node) -> Any:
        _check(node, (), set())
        return super().construct_document(node)


for _tag in ("float", "int", "bool", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", getattr(_Loader, f"construct_{_tag}"))
for _tag in ("value", "merge"):  # `=` and `<<` as values: text that is read back as it is written
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_scalar)


def _check_length(node: yaml.ScalarNode) -> None:
    if len(node.value) > _MAX_NUMBER:
        text = f"a number has more than {_MAX_NUMBER} characters"
        raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)


def _check(node: yaml.Node, above: tuple[int, ...], done: set[int]) -> None:
    """Raises ConstructorError for a duplicate key, or an alias inside the node that it refers to.

    Runs before the document is constructed, because merging (`<<`) changes its nodes.
    """
    if id(node) in above:
        raise yaml.constructor.ConstructorError(None, None, "an alias contains itself", node.start_mark)
    if id(node) in done or not isinstance(node, yaml.CollectionNode):
        return
    done.add(id(node))
    inside = (*above, id(node))
    if not isinstance(node, yaml.MappingNode):
        for item in node.value:
            _check(item, inside, done)
        return
    seen: set[tuple[str, str]] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if (key.tag, key.value) in seen:
                text = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            seen.add((key.tag, key.value))
        _check(key, inside, done)
        _check(value, inside, done)


def _check_size(text: str) -> None:
    """Raises ValueError for a text that is too deep, or too large once its aliases are expanded."""
    open_, sizes, anchors = [""], [0], dict[str, int]()
    for event in yaml.parse(text, Loader=getattr(yaml, "CLoader", yaml.Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append(event.anchor or "")
            sizes.append(1)
            if len(open_) > _MAX_DEPTH:
                raise ValueError(f"it has more than {_MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            size = sizes.pop()
            anchors[open_.pop()] = size
            sizes[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            sizes[-1] += anchors.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchors[event.anchor or ""] = 1
            sizes[-1] += 1
        if sizes[-1] > _MAX_VALUES:
            raise ValueError(f"it has more than {_MAX_VALUES} values, with aliases expanded")


def read_yaml(text: str) -> Any:
    """Returns the content of a YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, or has a duplicate key.
        ValueError: a value cannot be read, or there are too many values or levels.
    """
    try:
        _check_size(text)
        return yaml.load(text, Loader=_Loader)
    except RecursionError as error:
        raise ValueError("it has too many levels") from error
    except (LookupError, AttributeError, TypeError, ArithmeticError) as error:  # PyYAML 6.0, such as !!bool 1
        raise ValueError("a value does not match its tag") from error


def read_mapping(text: str, where: str) -> Mapping[str, Any]:
    """Returns the mapping in a YAML or JSON text; BadInputError names `where`, line and column."""
    try:
        data = _as_json(text) or read_yaml(text)
    except yaml.MarkedYAMLError as error:
        raise BadInputError(_place_and_problem(error, text), where=where) from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadInputError(f"not readable as YAML: {' '.join(str(error).split())}", where=where) from error
    if not isinstance(data, Mapping):
        found = "empty" if data is None else f"a {type(data).__name__}"
        raise BadInputError(f"is {found}; a job file is a mapping of fields such as 'script: train.py'", where=where)
    if bad := [k for k in data if not isinstance(k, str)]:
        raise BadInputError(f"the key {not_text(bad[0])}", where=where)
    return data


def _as_json(text: str) -> Any:
    """Returns the content of a JSON text; None if only the YAML parser can read it or report its errors.

    JSON is not a subset of YAML: it writes characters beyond U+FFFF as two escapes, which YAML rejects.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:
        return json.loads(
            text,
            object_pairs_hook=_once_each,
            parse_float=lambda source: scalar(float(source), source),
            parse_int=lambda source: scalar(int(source), source),
            parse_constant=lambda source: scalar(float(source), source),
        )
    except (ValueError, RecursionError):
        return None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _place_and_problem(error: yaml.MarkedYAMLError, text: str) -> str:
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    if (mark := error.problem_mark) is None:
        return f"not readable as YAML: {problem}"
    lines = text.splitlines()
    tab = mark.line < len(lines) and lines[mark.line].lstrip(" ").startswith("\t")
    advice = "; indent with spaces, not tabs" if tab else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: not readable as YAML: {problem}{advice}"
