"""Merges several logs by the timestamps of their rows.

For speed, the functions process blocks of rows, not single rows. Merging the output of sixteen ranks must not take
longer than reading the output.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeAlias

from stepset.backends.kubernetes.api.client import gather

Block: TypeAlias = tuple[list[bytes], list[bytes]]
"""Two lists of the same length: the times of the rows in non-decreasing order, and the rows."""

_NEVER = b"~"


async def merged(logs: Sequence[AsyncIterator[Block]]) -> AsyncGenerator[Block, None]:
    """Yields the rows of all logs, ordered by time. Rows with equal times are in the order of the logs.

    The function keeps at most one block of each log in memory. If a log cannot be read, the function first waits for
    the current read of every other log. Then the function raises the first error.
    """
    left = [_Log(blocks) for blocks in logs]
    while left:
        await gather(*(log.fill() for log in left if not log.rows))
        left = [log for log in left if log.rows]
        # No log has unread rows that are older than `until`.
        until = min((log.times[-1] for log in left if not log.ended), default=_NEVER)
        taken = [block for block in (log.take(until) for log in left) if block[1]]
        if len(taken) == 1:
            yield taken[0]
        elif taken:
            # Sorting the blocks of a hundred logs takes more than 100 ms, so the sort runs in a thread.
            yield await asyncio.to_thread(_sorted, taken)


def _sorted(blocks: Sequence[Block]) -> Block:
    """Returns the rows of all blocks, sorted by time."""
    times = [time for some, _ in blocks for time in some]
    rows = [row for _, some in blocks for row in some]
    order = sorted(range(len(times)), key=times.__getitem__)
    return [times[number] for number in order], [rows[number] for number in order]


class _Log:
    """One log, with a buffer of rows. `fill` reads rows into the buffer. `take` removes rows and returns them."""

    def __init__(self, blocks: AsyncIterator[Block]) -> None:
        self._blocks = blocks
        self.times: list[bytes] = []
        self.rows: list[bytes] = []
        self.ended = False

    async def fill(self) -> None:
        """Reads until rows are available or the log ends.

        Each call runs in a different task. Therefore `blocks` must not keep a cancel scope open across a `yield`.
        """
        while not self.rows and not self.ended:
            block = await anext(self._blocks, None)
            if block is None:
                self.ended = True
            else:
                self.times, self.rows = block

    def take(self, until: bytes) -> Block:
        """Removes and returns the rows up to the time `until`."""
        count = bisect_right(self.times, until)
        taken = self.times[:count], self.rows[:count]
        self.times, self.rows = self.times[count:], self.rows[count:]
        return taken
