"""One change to an object, as a watch or a new list reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Change:
    """A change to an object.

    Args:
        verb: as in watch events; objects of a first list are ADDED.
        object: the object, with apiVersion and kind; a deleted one as it was last seen.
        witnessed: False for a DELETED that was concluded from a new list without the object: its last state is unknown.
    """

    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]
    witnessed: bool = True
