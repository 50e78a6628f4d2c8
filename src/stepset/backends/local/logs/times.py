"""Records when the parts of a run's merged log were written, and where the attempts of the run begin in the log.

`log.times` and `log.attempts` consist of records of 16 bytes. A record contains a position in `log`, and a time in
seconds since the epoch. The time of a line is the time of the last record at or before the position of the line.
"""

from __future__ import annotations

import os
import struct
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from stepset.backends.local.private_files import LARGEST, open_private, read_regular
from stepset.backends.local.runs.run_dir import RunDir
from stepset.regular_files import open_regular
from stepset.unstructured import LATEST

_RECORD = struct.Struct("<Qd")
_TIMES, _ATTEMPTS = "log.times", "log.attempts"
_APPEND = os.O_WRONLY | os.O_APPEND
_EVERY = 0.02
"""The number of seconds between two records of times. A line between two records has the time of the earlier record."""
_SLOWER = 50_000
"""After this number of records, the interval becomes `2 * _EVERY`. After the same number of further records, it becomes
`3 * _EVERY`. The increasing interval limits the size of the file."""


class TimeWriter:
    """Writes the times of a run's log."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._times = open_private(run.path / _TIMES, _APPEND)
        self._position, self._last, self._records = 0, float("-inf"), 0

    def before(self, size: int) -> None:
        """Records the time of the `size` bytes that are appended to the log next. Raises OSError."""
        now = time.time()
        if not 0 <= now - self._last < _EVERY * (1 + self._records // _SLOWER):
            self._last = now
            self._records += 1
            os.write(self._times, _RECORD.pack(self._position, now))
        self._position += size

    def begin_attempt(self) -> None:
        """Records that an attempt begins. Raises OSError."""
        attempts = open_private(self._run.path / _ATTEMPTS, _APPEND)
        try:
            os.write(attempts, _RECORD.pack(self._position, time.time()))
        finally:
            os.close(attempts)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._times)


class LogTimes:
    """The times of a log. `exist` is False if the run was executed by an old version of stepset that wrote no times."""

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
            for position, at in _records(file.read(LARGEST)):
                self._positions.append(position)
                self._times.append(at)

    def at(self, position: int) -> float:
        """Returns the time of the line at a position, or 0 if the time is unknown."""
        index = bisect_right(self._positions, position) - 1
        return self._times[index] if index >= 0 else 0.0

    def first_since(self, since: float, end: int) -> int:
        """Returns the position of the first line that was written at `since` or later.

        Returns `end` if there is no such line.

        Args:
            end: the size of the log.
        """
        # A binary search is not possible, because the times are not sorted if the clock was set back.
        index = next((n for n, at in enumerate(self._times) if at >= since), None)
        return end if index is None else min(self._positions[index], end)


def attempt_range(run: RunDir, back: int) -> tuple[int, int] | None:
    """Returns the start and the end of an earlier attempt in the log, or None if this attempt does not exist.

    Args:
        back: selects the earlier attempt. 1 is the previous attempt, and 2 is the attempt before the previous attempt.
    """
    try:
        size = run.log.stat().st_size
        starts = [min(position, size) for position, _ in _records(read_regular(run.path / _ATTEMPTS))]
    except OSError:
        return None
    return (starts[-1 - back], starts[-back]) if 0 < back < len(starts) else None


def _records(data: bytes) -> Iterator[tuple[int, float]]:
    """Yields the complete records. The last record may still be incomplete.

    Another program may have written the file. Therefore a time outside the valid range is replaced by 0.
    """
    for position, at in _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]):
        yield position, at if 0 <= at < LATEST else 0.0
