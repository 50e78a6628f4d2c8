"""One change to an object, as a watch or a new list reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Change:
    """A change to an object; `verb` is as in watch events, and ADDED for the objects of a first list.

    `object` has apiVersion and kind; a deleted one is as it was last seen. `witnessed` is False for a DELETED that was
    concluded from a new list without the object: its last state is unknown.
    """

    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]
    witnessed: bool = True
