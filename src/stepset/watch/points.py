"""Keeps a limited number of a run's progress reports. The kept reports are evenly spaced over the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from stepset.run_status import Progress, ProgressPoint
from stepset.watch.bounded_json import finite
from stepset.watch.reported import MAX_METRICS

LIMIT = 160
"""The maximum number of points of a run."""

Item = TypeVar("Item")


class Thinned(Generic[Item]):
    """Keeps the first of the added items, every n-th item after it, and the last item.

    n is 1 at first, and doubles when the number of items would exceed `limit`.

    >>> few = Thinned(4)
    >>> for number in range(10):
    ...     few.add(number)
    >>> few.items
    (0, 4, 8, 9)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count, self._stride = 0, 1
        self._kept: list[Item] = []
        self._newest: tuple[Item, ...] = ()  # the last item, if it is not the last one of `_kept`

    def add(self, item: Item) -> None:
        if len(self._kept) + len(self._newest) == self._limit:
            self._thin()
        if self._count % self._stride:
            self._newest = (item,)
        else:
            self._kept.append(item)
            self._newest = ()
        self._count += 1

    def _thin(self) -> None:
        del self._kept[1::2]
        self._stride *= 2

    @property
    def items(self) -> tuple[Item, ...]:
        """The kept items, in the order in which they were added."""
        return (*self._kept, *self._newest)


def limited(points: Sequence[ProgressPoint]) -> tuple[ProgressPoint, ...]:
    """Returns the last LIMIT points of a recorded history, with the limits that apply to progress reports.

    Numbers that are not finite or too large are dropped, and so are the metrics after the first MAX_METRICS.
    """
    kept = [point for point in points[-LIMIT:] if finite(point.at) is not None]
    names = list(dict.fromkeys(name for point in kept for name in point.progress.metrics))[:MAX_METRICS]
    return tuple(ProgressPoint(point.at, _limited(point.progress, frozenset(names))) for point in kept)


def _limited(progress: Progress, names: frozenset[str]) -> Progress:
    metrics = {name: n for name, n in progress.metrics.items() if name in names and finite(n) is not None}
    step = None if finite(progress.step) is None else progress.step
    return Progress(step=step, progress=finite(progress.progress), metrics=metrics)
