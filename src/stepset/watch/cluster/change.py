"""One change to an object, as a watch or a new list reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Change:
    """A change to an object; `verb` is that of a watch event, and ADDED for the objects of the first list.

    `object` has apiVersion and kind; for a deletion it is the last known state. `observed` is False if a deletion was
    inferred from a new list that lacks the object: the object's state at its deletion is unknown.
    """

    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]
    observed: bool = True
