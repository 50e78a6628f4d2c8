"""Reads YAML and JSON.

Unlike PyYAML and `json`, this module rejects duplicate keys. If a parser changes a value, such as `1.10` to 1.1, this
module returns the value as a `Scalar`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from stepset.errors import BadInputError
from stepset.spec.scalars import not_text, scalar

_Safe: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times as fast
_NO_SPACE = re.compile(r"\s*(?:- )?[A-Za-z_]\w*:[^\s/]")
"""A line with a key and a value and no space between them."""
_MERGE = "tag:yaml.org,2002:merge"


_MAX_DEPTH = 100
"""The maximum number of nested levels.

Each level uses a part of the parser's stack. A stack overflow would crash the process.
"""
_MAX_VALUES = 200_000
"""The maximum number of values after aliases are expanded. A few lines with aliases can expand to a billion values."""
_MAX_NUMBER = 1000
"""The maximum length of a number.

PyYAML needs quadratic time for numbers of base 60, such as 1:30:00.
"""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_RESOLVER: Any = yaml.resolver.Resolver()


class _Loader(_Safe):  # type: ignore[misc, valid-type]  # its base is chosen at run time
    """A safe YAML loader that rejects duplicate keys. PyYAML's own loader uses the last value of a duplicate key."""

    def construct_document(self, node: yaml.Node) -> Any:
        _check(node, (), set())
        return super().construct_document(node)


def _scalar_constructor(tag: str) -> Callable[[_Loader, yaml.ScalarNode], Any]:
    construct = getattr(_Loader, f"construct_yaml_{tag}")
    return lambda loader, node: scalar(construct(loader, node), node.value)


for _tag in ("float", "int", "bool", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _scalar_constructor(_tag))
for _tag in ("value", "merge"):  # the values `=` and `<<` are strings
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_scalar)


def _check(node: yaml.Node, above: tuple[int, ...], done: set[int]) -> None:
    """Raises ConstructorError if a mapping contains a duplicate key, or if a node contains an alias of itself.

    Callers must call this function before the document is constructed, because merge keys (`<<`) change the nodes.
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


def check_limits(text: str) -> None:
    """Raises an error if a YAML loader would need too much time, memory or stack.

    Call this function before any YAML loader reads `text`.

    Raises:
        yaml.YAMLError: `text` is not YAML, or a number has too many characters.
        ValueError: there are too many nested levels, or too many values after aliases are expanded.
    """
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
            if len(event.value) > _MAX_NUMBER and _is_number(event):
                mark: Any = event.start_mark  # the type stubs of PyYAML lack the C parser's marks
                problem = f"a number has more than {_MAX_NUMBER} characters"
                raise yaml.constructor.ConstructorError(None, None, problem, mark)
        if sizes[-1] > _MAX_VALUES:
            raise ValueError(f"it has more than {_MAX_VALUES} values, with aliases expanded")


def _is_number(event: yaml.ScalarEvent) -> bool:
    tag = event.tag
    if tag in (None, "!"):
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit)
    return tag in _NUMBERS


def read_yaml(text: str) -> Any:
    """Parses a YAML document.

    Raises:
        yaml.YAMLError: `text` is not YAML, or contains a duplicate key.
        ValueError: a value cannot be read, or there are too many values or nested levels.
    """
    try:
        check_limits(text)
        return yaml.load(text, Loader=_Loader)
    except RecursionError as error:
        raise ValueError("it has too many levels") from error
    # PyYAML 6.0 raises these errors if a value does not match its tag. One example is `!!bool 1`.
    except (LookupError, AttributeError, TypeError, ArithmeticError) as error:
        raise ValueError("a value does not match its tag") from error


def read_mapping(text: str, where: str) -> Mapping[str, Any]:
    """Parses a YAML or JSON document that is a mapping.

    Raises BadInputError if `text` is not a mapping. The error contains `where`, the line and the column.
    """
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
    """Parses a JSON object. Returns None if `text` is not a valid JSON object. The caller then uses the YAML parser.

    JSON needs a separate parser, because the YAML parser rejects some valid JSON. For example, it rejects escaped
    surrogate pairs.
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
    advice = _syntax_advice(error, text.splitlines(), mark.line)
    return f"line {mark.line + 1}, column {mark.column + 1}: not readable as YAML: {problem}{advice}"


def _syntax_advice(error: yaml.MarkedYAMLError, lines: list[str], at: int) -> str:
    """Returns the advice for a syntax error that the parser reports at the line with the index `at`, or ""."""
    if at < len(lines) and lines[at].lstrip(" ").startswith("\t"):
        return "; indent with spaces, not tabs"
    # Without a space after the colon, the line is a text. The parser then reports this line or the next one.
    for index in range(max(0, at - 1), min(at + 1, len(lines))):
        if _NO_SPACE.match(lines[index]):
            return f"; write a space after the colon in line {index + 1}"
    if (error.problem or "").startswith("mapping values are not allowed"):
        return "; indent the fields of one mapping equally, and quote a value that contains ': '"
    return ""
