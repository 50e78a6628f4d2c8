"""Merges more logs than can be open at the same time.

The logs are merged in groups, and the result of each group is stored in a temporary file. The reason is that each open
log needs a file descriptor, and a process has about a thousand file descriptors.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import IO

from stepset.backends.kubernetes.logs.merge import Block, merged
from stepset.errors import InfrastructureError

_BYTES = 1 << 16
"""The approximate number of bytes that are read from a file at a time."""


async def in_groups(logs: Sequence[AsyncIterator[Block]], at_once: int) -> AsyncGenerator[Block, None]:
    """Yields the rows of all logs, ordered by time. Opens at most `at_once` logs at the same time.

    If there are more than `at_once` logs, this function uses temporary files. Raises InfrastructureError if the
    temporary files cannot be written.
    """
    if len(logs) <= at_once:
        async with aclosing(merged(logs)) as blocks:
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


async def _through_files(logs: Sequence[AsyncIterator[Block]], at_once: int) -> AsyncGenerator[Block, None]:
    async with AsyncExitStack() as opened:
        groups = []
        for first in range(0, len(logs), at_once):
            file = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
            async with aclosing(merged(logs[first : first + at_once])) as blocks:
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
