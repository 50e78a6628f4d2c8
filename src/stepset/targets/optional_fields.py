"""Optional fields of manifests."""

from __future__ import annotations

from typing import Any


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: neither None nor empty. 0 and False are values."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}
