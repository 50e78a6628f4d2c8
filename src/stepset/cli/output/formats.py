"""Formats output as JSON or YAML, and converts durations in flags to seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from stepset.errors import BadInputError
from stepset.printable import printable_json
from stepset.watch.bounded_json import without_nan


def as_json(data: Any, *, indent: int | None = 2) -> str:
    """Returns plain data as printable JSON. NaN and infinity become null (RFC 8259, section 6).

    If `indent` is None, the JSON has no line breaks except the last one.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(without_nan(data), indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    return printable_json(text) + "\n"


def as_yaml(data: Mapping[str, Any]) -> str:
    """Returns plain data as YAML. The keys keep their order.

    A string is quoted if a YAML parser would otherwise convert the string to a different value.
    """
    from stepset.targets.dump import to_yaml

    return to_yaml([data])


def time_before_now(flag: str, text: str) -> float:
    """Subtracts the duration `text` from the current time. Returns the result in seconds since the epoch.

    Raises BadInputError if `text` is not a duration. The error contains the flag.
    """
    return time.time() - seconds_of(flag, text)


def seconds_of(flag: str, text: str) -> float:
    """Converts a duration such as 90s or 10m to seconds.

    Raises BadInputError if `text` is not a duration, or if it is a number without a unit. The error contains the flag.
    """
    from stepset.spec.quantity import given_duration

    if (number := text.strip()).isdecimal():
        raise BadInputError(f"{flag}: {number!r} has no unit; write for example {number}d, {number}h or {number}s")
    return float(given_duration(flag, text))
