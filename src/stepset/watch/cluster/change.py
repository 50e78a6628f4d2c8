"""One change to an object, as a watch or a new list reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct


class Change(Struct, frozen=True):
    """A change to an object.

    Args:
        verb: the type of the watch event. For the objects of the first list, it is ADDED.
        object: the object with its apiVersion and kind. For a deletion, this is the last known state of the object.
        observed: whether a watch has reported the change. The value is False if the object is missing in a new list.
            Then the object was deleted, and the state of the object at that time is unknown.
    """

    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]
    observed: bool = True
