"""A function that omits empty fields of manifests."""

from __future__ import annotations

from typing import Any

_EMPTY: tuple[Any, ...] = ("", [], {})


def without_empty(**fields: Any) -> dict[str, Any]:
    """Returns the fields without those that are None or empty. Fields with the values 0 and False are kept."""
    found = {}
    # Before Python 3.12, a loop is faster than a comprehension. Each render calls this function twenty times.
    for name, value in fields.items():
        if value or (value is not None and value not in _EMPTY):
            found[name] = value
    return found
