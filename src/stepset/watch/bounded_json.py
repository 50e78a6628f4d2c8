"""Parses JSON that training code or another account may have written."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

MAX_DEPTH = 100
"""The maximum nesting of lists and objects; deeper data could not be copied or written."""

_LARGEST = 2**63


def parse_json(data: str | bytes) -> Any:
    """Parses JSON; raises ValueError if it is invalid or nested deeper than MAX_DEPTH levels."""
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("too many levels") from error
    level = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return found
    raise ValueError(f"more than {MAX_DEPTH} levels")


def _inside(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def finite(value: Any) -> float | None:
    """Returns a number of JSON data if it is finite and its absolute value is below 2^63; None for anything else."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if number and -_LARGEST < value < _LARGEST and math.isfinite(value) else None
