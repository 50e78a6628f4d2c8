"""Parses JSON that may have been written by training code or by another user."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from stepset.surrogates import encodable

MAX_DEPTH = 100
"""The maximum nesting of lists and objects. Data with more levels could not be copied or written."""

_LARGEST = 2**63


def parse_json(data: str | bytes) -> Any:
    """Parses JSON. Raises ValueError if the JSON is invalid or has more than MAX_DEPTH levels.

    Lone surrogates are replaced by U+FFFD, because no text encoding can express them.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("too many levels") from error
    level = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return _encodable(found) if _may_have_surrogates(data) else found
    raise ValueError(f"more than {MAX_DEPTH} levels")


def _inside(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _may_have_surrogates(data: str | bytes) -> bool:
    """Returns whether the data contains an escape such as `\\ud800`, or is not ASCII.

    Bytes that contain a null byte may be UTF-16. In UTF-16 data, the search for the bytes of `\\u` finds no escape.
    """
    if isinstance(data, str):
        return "\\u" in data or not data.isascii()
    return b"\\u" in data or b"\0" in data or not data.isascii()


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return [_encodable(each) for each in value] if isinstance(value, list) else value


def finite(value: Any) -> float | None:
    """Returns the value if it is a finite number whose absolute value is below 2^63. Returns None otherwise."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if number and -_LARGEST < value < _LARGEST and math.isfinite(value) else None


def without_nan(value: Any) -> Any:
    """Returns plain data with None instead of NaN and infinity, which JSON cannot express (RFC 8259, section 6).

    Python's JSON module reads and writes NaN and infinity. If the data contains neither, returns `value` itself.

    >>> without_nan({"loss": [0.5, float("nan")]})
    {'loss': [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        found = {key: without_nan(each) for key, each in value.items()}
        return found if any(found[key] is not each for key, each in value.items()) else value
    if isinstance(value, (list, tuple)):
        items = [without_nan(each) for each in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
