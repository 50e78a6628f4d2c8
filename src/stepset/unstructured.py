"""Reads fields of Kubernetes objects and of the agent's events.

Every user who can create objects in the namespace can set these fields to any value. Therefore no function raises an
error for a missing or invalid field, and the size of each result is limited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

LARGEST = 2**31 - 1
"""The largest number that the functions accept. Counts, indexes and exit codes of Kubernetes have 32 bits."""
_DIGITS = len(str(LARGEST))
LATEST = 2.0**35
"""The limit of times, in seconds since the epoch (year 3058). Python cannot format years after 9999, and a time in the
year 9999 is in the year 10000 in some time zones."""

Fields = Mapping[str, Any]

_NOTHING: Fields = {}


def part(data: Fields, *path: str) -> Fields:
    """Returns the mapping at a path, or an empty mapping if the path contains no mapping.

    >>> part({"status": {"state": {"phase": "Running"}}}, "status", "state")
    {'phase': 'Running'}
    """
    for name in path:
        found = data.get(name)
        # The check for `dict` comes first, because the check for an abstract class takes several times as long.
        if not isinstance(found, (dict, Mapping)):
            return _NOTHING
        data = found
    return data


def rows(data: Fields, name: str) -> Sequence[Fields]:
    """Returns the mappings of a list, or an empty sequence if there is no list."""
    found = data.get(name)
    return [row for row in found if isinstance(row, (dict, Mapping))] if isinstance(found, list) else ()


def text(data: Fields, name: str) -> str:
    """Returns the string in a field, or an empty string if the field contains no string."""
    found = data.get(name)
    return found if isinstance(found, str) else ""


def number(data: Fields, name: str, default: int = 0) -> int:
    """Returns the integer in a field, or `default` if the field contains no integer.

    The integer can be written as a string, because the values of labels are strings.
    """
    return to_number(data.get(name), default)


def to_number(value: Any, default: int = 0) -> int:
    """Returns a value as an integer of at most 32 bits, or `default` if the value is not such an integer.

    >>> to_number("7"), to_number("9" * 5000), to_number(2**70, 1)
    (7, 0, 1)
    """
    if isinstance(value, str) and len(value) <= _DIGITS and value.isdecimal():
        value = int(value)
    return value if _is_number(value) else default


def integer(data: Fields, name: str) -> int | None:
    """Returns the integer in a field of an agent's event, or None if the field contains no integer of 32 bits."""
    found = data.get(name)
    return found if _is_number(found) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def seconds(words: str) -> float | None:
    """Returns the number of seconds in a string such as `300` or `0.5`.

    Returns None if the string is invalid, or if the duration is longer than 68 years.
    """
    plain = len(words) <= 20 and words.replace(".", "", 1).isdecimal()
    return found if plain and (found := float(words)) <= LARGEST else None


def time_of(data: Fields, name: str) -> float | None:
    """Returns the time in a field, in seconds since the epoch. Returns None if the field contains no valid time.

    Returns None for the epoch itself, because container runtimes report the epoch for containers that never started.

    >>> time_of({"at": "2026-01-01T00:00:00Z"}, "at")
    1767225600.0
    """
    found = data.get(name)
    if not isinstance(found, str):
        return None
    try:
        at = datetime.fromisoformat(found).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return at if 0 < at < LATEST else None


def moment(data: Fields, name: str) -> float | None:
    """Returns the time in a field of an agent's event, in seconds since the epoch, or None if there is none."""
    found = data.get(name)
    if not isinstance(found, (int, float)) or isinstance(found, bool):
        return None
    return float(found) if 0 <= found < LATEST else None


def conditions(status: Fields) -> dict[str, Fields]:
    """Returns the conditions in an object's status. The keys of the mapping are the types of the conditions."""
    return {text(row, "type"): row for row in rows(status, "conditions")}


def holds(condition: Fields | None) -> bool:
    """Returns whether a condition exists and has the status True."""
    return condition is not None and condition.get("status") == "True"


def one_line(words: str, limit: int = 1000) -> str:
    """Returns the text on one line of at most `limit` characters. If the text is longer, `…` replaces the rest.

    >>> one_line("two\\n  lines"), one_line("a long text", 7)
    ('two lines', 'a long…')
    """
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
