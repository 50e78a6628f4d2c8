"""Optional fields of manifests."""

from __future__ import annotations

from typing import Any

_EMPTY: tuple[Any, ...] = ("", [], {})


def without_empty(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: neither None nor empty. 0 and False are values."""
    found = {}
    # Not a comprehension: before Python 3.12 that is one more function call, and a render calls this twenty times.
    for name, value in fields.items():
        if value or (value is not None and value not in _EMPTY):
            found[name] = value
    return found
