"""Merges several logs in the order of their times.

Works on blocks of rows for speed: merging the output of sixteen ranks must not take longer than reading it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeAlias

from stepset.backends.kubernetes.api.client import gather

Block: TypeAlias = tuple[list[bytes], list[bytes]]
"""The times of some rows, as text in non-decreasing order, and the rows."""

_NEVER = b"~"


async def merged(logs: Sequence[AsyncIterator[Block]]) -> AsyncGenerator[Block, None]:
    """Yields the rows of all logs by time, rows with equal times in the order of the logs. Keeps one block of each log.

    Raises the first error of a log once the reads of the other logs have ended.
    """
    left = [_Log(blocks) for blocks in logs]
    while left:
        await gather(*(log.fill() for log in left if not log.rows))
        left = [log for log in left if log.rows]
        # No log has unread rows that are older than this.
        until = min((log.times[-1] for log in left if not log.ended), default=_NEVER)
        taken = [block for block in (log.take(until) for log in left) if block[1]]
        if len(taken) == 1:
            yield taken[0]
        elif taken:
            # In a thread, because sorting the blocks of a hundred logs takes more than 100 ms.
            yield await asyncio.to_thread(_sorted, taken)


def _sorted(blocks: Sequence[Block]) -> Block:
    """Returns the rows of all blocks, sorted by time."""
    times = [time for some, _ in blocks for time in some]
    rows = [row for _, some in blocks for row in some]
    order = sorted(range(len(times)), key=times.__getitem__)
    return [times[number] for number in order], [rows[number] for number in order]


class _Log:
    """One of the logs, and the rows of it that were read and not yet taken."""

    def __init__(self, blocks: AsyncIterator[Block]) -> None:
        self._blocks = blocks
        self.times: list[bytes] = []
        self.rows: list[bytes] = []
        self.ended = False

    async def fill(self) -> None:
        """Reads until there are rows, or the log ends.

        Each call is in another task, so no cancel scope may span a `yield` of the generators that it resumes.
        """
        while not self.rows and not self.ended:
            block = await anext(self._blocks, None)
            if block is None:
                self.ended = True
            else:
                self.times, self.rows = block

    def take(self, until: bytes) -> Block:
        """Removes and returns the rows up to a time."""
        count = bisect_right(self.times, until)
        taken = self.times[:count], self.rows[:count]
        self.times, self.rows = self.times[count:], self.rows[count:]
        return taken
