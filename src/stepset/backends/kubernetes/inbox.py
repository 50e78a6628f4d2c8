"""Queues bounded by what is in them, not by how many things are: for threads, and for an event loop.

Used by hearing.py and, in a triggerer, by stepset_airflow's async_logs.py. A pod decides how much it prints at a time;
what waits here must not fill the memory all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Queue
from typing import TypeVar

T = TypeVar("T")


class Inbox(Queue[T]):
    """A queue in which `put` waits while what is in it weighs as much as is allowed, or more.

    Args:
        limit: what all that waits may weigh together; one thing may be heavier.
        weight: of one thing, above 0.
    """

    def __init__(self, limit: int, weight: Callable[[T], int]) -> None:
        self._weight, self._total = weight, 0
        super().__init__(limit)

    # What the base class leaves to its heirs (PriorityQueue is one); all three are called under its lock.

    def _qsize(self) -> int:
        return self._total

    def _put(self, item: T) -> None:
        super()._put(item)
        self._total += self._weight(item)

    def _get(self) -> T:
        item = super()._get()
        self._total -= self._weight(item)
        return item


class AsyncInbox(asyncio.Queue[T]):
    """The same for an event loop; the parameters are those of Inbox."""

    def __init__(self, limit: int, weight: Callable[[T], int]) -> None:
        self._weight, self._total = weight, 0
        super().__init__(limit)

    def qsize(self) -> int:
        """What all that waits weighs; the base class compares it with the limit."""
        return self._total

    def _put(self, item: T) -> None:
        super()._put(item)
        self._total += self._weight(item)

    def _get(self) -> T:
        item: T = super()._get()
        self._total -= self._weight(item)
        return item
