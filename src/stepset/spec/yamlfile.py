"""Reads YAML and JSON; a duplicate key is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from stepset.errors import BadInputError

_Safe: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(_Safe):  # type: ignore[misc, valid-type]  # its base is chosen at run time
    """Safe YAML that rejects a duplicate key, where PyYAML silently takes the last value."""

    def construct_document(self, node: yaml.Node) -> Any:
        _check(node, (), set())
        return super().construct_document(node)


def _check(node: yaml.Node, above: tuple[int, ...], done: set[int]) -> None:
    """Raises ConstructorError for a duplicate key, or an alias inside the node that it refers to.

    This comes before the construction of the document, because merging (`<<`) changes its nodes.
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


def read_mapping(text: str, where: str) -> Mapping[str, Any]:
    """Returns the mapping in a YAML or JSON text; BadInputError names `where`, line and column."""
    try:
        data = _as_json(text) or yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise BadInputError(_place_and_problem(error, text), where=where) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"not readable as YAML: {' '.join(str(error).split())}", where=where) from error
    if not isinstance(data, Mapping):
        found = "empty" if data is None else f"a {type(data).__name__}"
        raise BadInputError(f"is {found}; a job file is a mapping of fields such as 'script: train.py'", where=where)
    if bad := [k for k in data if not isinstance(k, str)]:
        raise BadInputError(f"the key {bad[0]!r} is not text; quote it", where=where)
    return data


def _as_json(text: str) -> Any:
    """Returns the content of a JSON text; None if only the YAML parser can read it or report its errors.

    JSON is not a subset of YAML: it writes characters beyond U+FFFF as two escapes, which YAML rejects.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:
        return json.loads(text, object_pairs_hook=_once_each)
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
