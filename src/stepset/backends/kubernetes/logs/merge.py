"""Merges several logs by the timestamps of their rows.

For speed, the functions process blocks of rows, not single rows. Merging the output of sixteen ranks must not take
longer than reading the output.

More logs than can be open at the same time are merged in groups, and the result of each group is stored in a temporary
file. Each open log needs a file descriptor, and a process has about a thousand file descriptors.
"""

from __future__ import annotations

import asyncio
import tempfile
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import IO, TypeAlias

from stepset.backends.kubernetes.api.client import gather
from stepset.errors import InfrastructureError

Block: TypeAlias = tuple[list[bytes], list[bytes]]
"""Two lists of the same length: the times of the rows in non-decreasing order, and the rows."""

_NEVER = b"~"
_BYTES = 1 << 16
"""The approximate number of bytes that are read from a temporary file at a time."""


async def in_groups(logs: Sequence[AsyncIterator[Block]], at_once: int) -> AsyncGenerator[Block, None]:
    """Yields the rows of all logs, ordered by time. Opens at most `at_once` logs at the same time.

    If there are more than `at_once` logs, this function uses temporary files. Raises InfrastructureError if the
    temporary files cannot be written.
    """
    if len(logs) <= at_once:
        async with aclosing(_merged(logs)) as blocks:
            async for block in blocks:
                yield block
        return
    try:
        async with aclosing(_through_files(logs, at_once)) as blocks:
            async for block in blocks:
                yield block
    except OSError as error:
        raise InfrastructureError(
            f"{tempfile.tempdir or 'temporary directory'}: {error.strerror}; the logs of {len(logs)} pods are sorted in"
            " temporary files there: set TMPDIR to a directory with more space, or select fewer ranks"
        ) from error


async def _merged(logs: Sequence[AsyncIterator[Block]]) -> AsyncGenerator[Block, None]:
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


async def _through_files(logs: Sequence[AsyncIterator[Block]], at_once: int) -> AsyncGenerator[Block, None]:
    async with AsyncExitStack() as opened:
        groups = []
        for first in range(0, len(logs), at_once):
            file = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
            async with aclosing(_merged(logs[first : first + at_once])) as blocks:
                async for block in blocks:
                    await asyncio.to_thread(_store, file, block)
            groups.append(await opened.enter_async_context(aclosing(_stored(file))))
        async for block in await opened.enter_async_context(aclosing(in_groups(groups, at_once))):
            yield block


def _store(file: IO[bytes], block: Block) -> None:
    file.writelines(b"%s %s\n" % each for each in zip(*block, strict=True))


async def _stored(file: IO[bytes]) -> AsyncGenerator[Block, None]:
    await asyncio.to_thread(file.seek, 0)
    while block := await asyncio.to_thread(_load, file):
        yield block


def _load(file: IO[bytes]) -> Block | None:
    parted = [line[:-1].partition(b" ") for line in file.readlines(_BYTES)]
    return ([time for time, _, _ in parted], [row for _, _, row in parted]) if parted else None
