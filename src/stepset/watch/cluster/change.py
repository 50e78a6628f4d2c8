"""One change to an object, as a watch or a new list tells it. Made by feeds, taken by RunObjects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Change:
    """What became of an object.

    Args:
        verb: as watches say it; what a first list holds is ADDED.
        object: the object, with apiVersion and kind; of one that is gone, as last seen.
        witnessed: False for a DELETED that was only concluded, from a new list in which the object was missing: then
            nobody knows what it said at the end.
    """

    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]
    witnessed: bool = True
