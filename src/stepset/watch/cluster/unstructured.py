"""Readers of fields of Kubernetes objects and of agents' events. Missing and invalid fields read as empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Fields = Mapping[str, Any]

_NOTHING: Fields = {}


def part(data: Fields, *path: str) -> Fields:
    """Returns the mapping at a path; empty if there is none.

    >>> part({"status": {"state": {"phase": "Running"}}}, "status", "state")
    {'phase': 'Running'}
    """
    for name in path:
        found = data.get(name)
        if not isinstance(found, Mapping):
            return _NOTHING
        data = found
    return data


def rows(data: Fields, name: str) -> Sequence[Fields]:
    """The mappings of a list; empty if there is none."""
    found = data.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else ()


def text(data: Fields, name: str) -> str:
    """A string; empty if there is none."""
    found = data.get(name)
    return found if isinstance(found, str) else ""


def number(data: Fields, name: str, default: int = 0) -> int:
    """An integer, also one written as text, as in labels; `default` for anything else."""
    return to_number(data.get(name), default)


def to_number(value: Any, default: int = 0) -> int:
    """A value as an integer; `default` if it is not one."""
    if isinstance(value, bool):
        return default
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() else default


def integer(data: Fields, name: str) -> int | None:
    """An integer of an agent's event; None if there is none."""
    found = data.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


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
        return datetime.fromisoformat(found).timestamp() or None
    except ValueError:
        return None


def conditions(status: Fields) -> dict[str, Fields]:
    """The conditions of an object's status, by type."""
    return {text(row, "type"): row for row in rows(status, "conditions")}


def holds(condition: Fields | None) -> bool:
    """Whether a condition exists and is true."""
    return condition is not None and condition.get("status") == "True"


def one_line(words: str, limit: int = 1000) -> str:
    """The text on one line, cut to a limit of characters."""
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
