"""When the parts of a run's merged log were written, and where its attempts begin.

`log.times` and `log.attempts` consist of records of 16 bytes: a position in `log`, and a time in seconds since the
epoch. A line has the time of the last record at or before its position.
"""

from __future__ import annotations

import os
import struct
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from stepset.backends.local.private_files import open_private, read_regular
from stepset.backends.local.store import RunDir
from stepset.regular_files import open_regular

_RECORD = struct.Struct("<Qd")
_TIMES, _ATTEMPTS = "log.times", "log.attempts"
_APPEND = os.O_WRONLY | os.O_APPEND
_EVERY = 0.02
"""Seconds between two records of times; lines that are written in between have the time of the earlier record."""
_SLOWER = 50_000
"""The number of records after which the interval is `2 * _EVERY`, then `3 * _EVERY`, so that files stay small."""


class TimeWriter:
    """Writes the times of one run's log."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._times = open_private(run.path / _TIMES, _APPEND)
        self._position, self._last, self._records = 0, float("-inf"), 0

    def before(self, size: int) -> None:
        """Records the time of `size` bytes that are appended to the log next; raises OSError."""
        now = time.time()
        if not 0 <= now - self._last < _EVERY * (1 + self._records // _SLOWER):
            self._last = now
            self._records += 1
            os.write(self._times, _RECORD.pack(self._position, now))
        self._position += size

    def begin_attempt(self) -> None:
        """Records that an attempt begins; raises OSError."""
        attempts = open_private(self._run.path / _ATTEMPTS, _APPEND)
        try:
            os.write(attempts, _RECORD.pack(self._position, time.time()))
        finally:
            os.close(attempts)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._times)


class LogTimes:
    """The times of a log; `exist` is False for a run of an earlier version, which wrote none."""

    def __init__(self, run: RunDir) -> None:
        self._path = run.path / _TIMES
        self._positions: list[int] = []
        self._times: list[float] = []
        self.exist = self._path.exists()
        self.refresh()

    def refresh(self) -> None:
        """Reads the records that were written since the last call."""
        if not self.exist:
            return
        with open_regular(self._path) as file:
            file.seek(len(self._positions) * _RECORD.size)
            for position, at in _records(file.read()):
                self._positions.append(position)
                self._times.append(at)

    def at(self, position: int) -> float:
        """Returns the time of the line at a position; 0 if it is unknown."""
        index = bisect_right(self._positions, position) - 1
        return self._times[index] if index >= 0 else 0.0

    def first_since(self, since: float, end: int) -> int:
        """Returns the position of the first line that was written at `since` or later; `end` if there is none."""
        # Not a binary search: a clock that is set back makes the times unordered.
        index = next((n for n, at in enumerate(self._times) if at >= since), None)
        return end if index is None else self._positions[index]


def attempt_range(run: RunDir, back: int) -> tuple[int, int] | None:
    """Returns where the attempt `back` attempts before the current one begins and ends; None if there is none."""
    try:
        starts = [position for position, _ in _records(read_regular(run.path / _ATTEMPTS))]
    except OSError:
        return None
    return (starts[-1 - back], starts[-back]) if 0 < back < len(starts) else None


def _records(data: bytes) -> Iterator[tuple[int, float]]:
    """Yields the whole records; the last one may still be incomplete."""
    return _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size])
