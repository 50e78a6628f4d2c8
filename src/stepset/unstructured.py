"""Readers of fields of Kubernetes objects and of agents' events. Missing and invalid fields read as empty.

Users who can create objects in the namespace choose their fields, so no reader raises, and every result is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

LARGEST = 2**31 - 1
"""The largest number that is read: counts, indexes and exit codes of Kubernetes have 32 bits."""
LATEST = 253_402_300_799.0
"""The latest time that is read, in seconds since the epoch: the end of the year 9999."""

Fields = Mapping[str, Any]

_NOTHING: Fields = {}


def part(data: Fields, *path: str) -> Fields:
    """Returns the mapping at a path; empty if there is none.

    >>> part({"status": {"state": {"phase": "Running"}}}, "status", "state")
    {'phase': 'Running'}
    """
    for name in path:
        found = data.get(name)
        # `dict` first: the check of an abstract class takes several times as long.
        if not isinstance(found, (dict, Mapping)):
            return _NOTHING
        data = found
    return data


def rows(data: Fields, name: str) -> Sequence[Fields]:
    """The mappings of a list; empty if there is none."""
    found = data.get(name)
    return [row for row in found if isinstance(row, (dict, Mapping))] if isinstance(found, list) else ()


def text(data: Fields, name: str) -> str:
    """A string; empty if there is none."""
    found = data.get(name)
    return found if isinstance(found, str) else ""


def number(data: Fields, name: str, default: int = 0) -> int:
    """An integer, also one written as text, as in labels; `default` for anything else."""
    return to_number(data.get(name), default)


def to_number(value: Any, default: int = 0) -> int:
    """A value as an integer of at most 32 bits; `default` if it is not one.

    >>> to_number("7"), to_number("9" * 5000), to_number(2**70, 1)
    (7, 0, 1)
    """
    if isinstance(value, str) and len(value) <= len(str(LARGEST)) and value.isdecimal():
        value = int(value)
    return value if _is_number(value) else default


def integer(data: Fields, name: str) -> int | None:
    """An integer of an agent's event; None if there is none of at most 32 bits."""
    found = data.get(name)
    return found if _is_number(found) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def seconds(words: str) -> float | None:
    """A text such as `300` or `0.5` as a duration in seconds; None if it is invalid, or above LATEST."""
    plain = len(words) <= 20 and words.replace(".", "", 1).isdecimal()
    return found if plain and (found := float(words)) <= LATEST else None


def time_of(data: Fields, name: str) -> float | None:
    """A time in seconds since the epoch; None if it is missing.

    Also None for the epoch itself, which runtimes report for containers that never started.

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
    return at if 0 < at <= LATEST else None


def moment(data: Fields, name: str) -> float | None:
    """A number of seconds since the epoch in an agent's event; None if there is none."""
    found = data.get(name)
    if not isinstance(found, (int, float)) or isinstance(found, bool):
        return None
    return float(found) if 0 <= found <= LATEST else None


def conditions(status: Fields) -> dict[str, Fields]:
    """The conditions of an object's status, by type."""
    return {text(row, "type"): row for row in rows(status, "conditions")}


def holds(condition: Fields | None) -> bool:
    """Whether a condition exists and is true."""
    return condition is not None and condition.get("status") == "True"


def one_line(words: str, limit: int = 1000) -> str:
    """The text on one line of at most `limit` characters; `…` replaces the rest of a longer text.

    >>> one_line("two\\n  lines"), one_line("a long text", 7)
    ('two lines', 'a long…')
    """
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
