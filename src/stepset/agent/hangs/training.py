"""The progress of the training of a pod whose ranks print lines: a thread may print while all ranks hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_REGULAR = 3  # changes that were seen, after which the lack of changes means something
_PAUSES, _PERIODS = 5, 2
_MOST_SOURCES = 1024


class Training:
    """The times at which collectives, steps or checkpoints have changed.

    Args:
        after: the number of seconds without any progress that is a hang (`hang.after`).
        at: the current time (`time.monotonic`).
    """

    def __init__(self, after: float, at: float) -> None:
        self._after = after
        self.interval = after / 2  # seconds between two looks while ranks print lines
        self.sources: set[bytes] = set()  # the prefixes of the lines since the last change
        self.reset(at)

    def reset(self, at: float) -> None:
        """Begins again, with a new attempt."""
        self.at = at
        self._longest = 0.0
        self._changes = 0
        self.sources.clear()

    def changed(self, at: float) -> None:
        """Records a change. It is seen only by a look, which may be later."""
        if self._changes:
            self._longest = max(self._longest, at - self.at)
        self._changes += 1
        self.at = at
        self.sources.clear()

    def printed(self, lines: bytes) -> None:
        """Records which rank has printed lines. Lines of several ranks are attributed to the first of them."""
        if len(self.sources) < _MOST_SOURCES:
            self.sources.add(lines[:40].partition(b"]")[0].rstrip(b"+~"))

    @property
    def limit(self) -> float:
        """The number of seconds without a change that is much longer than before."""
        return max(_PERIODS * self._after, _PAUSES * self._longest)

    def is_late(self, at: float) -> bool:
        """Returns whether there was no change for much longer than before, although changes were regular."""
        return self._changes >= _REGULAR and at - self.at >= self.limit

    def is_stuck(self, ranks: Iterable[Mapping[str, Any]]) -> bool:
        """Returns whether no rank works, and each rank that prints lines waits in a collective since the last change.

        Args:
            ranks: the samples of the ranks.
        """
        waiting = set()
        for rank in ranks:
            waits = any(group["seq"] and group["age"] >= self._after for group in rank["collectives"])
            # A rank that waits in NCCL uses a whole core.
            if any(process["changed" if waits else "busy"] for process in rank["processes"]):
                return False
            if waits and rank["rank"] is not None:
                waiting.add(b"[rank %d" % rank["rank"])
        return bool(waiting) and self.sources - {b"[stepset"} <= waiting
