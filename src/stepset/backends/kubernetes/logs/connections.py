"""Limits the number of logs that are read at the same time.

If a run has more logs than this limit, the readers that follow logs take turns.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

MAX_LOGS = 512
"""The maximum number of logs that are read at the same time. Each log needs one file descriptor."""
TURN = 2.0
"""If a reader has waited for this number of seconds, another reader must release a connection."""

GiveUp = Callable[[], None]


class LogConnections:
    """Limits the number of logs that are read at the same time.

    The default limit is half of the process's limit of open files, but at least 16 and at most 512.
    """

    def __init__(self, limit: int | None = None) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = MAX_LOGS if descriptors == resource.RLIM_INFINITY else min(MAX_LOGS, descriptors // 2)
        self._limit = limit or max(16, most)
        self._free = asyncio.Semaphore(self._limit)
        self._following: dict[GiveUp, None] = {}
        self._waiting = 0
        self._turned = float("-inf")

    @asynccontextmanager
    async def one(self, give_up: GiveUp | None) -> AsyncIterator[None]:
        """Waits for a connection, and holds the connection while the `async with` block runs.

        If other callers wait too long, this object calls `give_up`. The function `give_up` must make the block end. If
        `give_up` is None, the block keeps its connection.
        """
        await self._acquire()
        if give_up is not None:
            self._following[give_up] = None
        try:
            yield
        finally:
            if give_up is not None:
                self._following.pop(give_up, None)
            self._free.release()

    async def _acquire(self) -> None:
        self._waiting += 1
        try:
            while True:
                with anyio.move_on_after(TURN):
                    await self._free.acquire()
                    return
                self._turn()
        finally:
            self._waiting -= 1

    def _turn(self) -> None:
        """Calls `give_up` of the readers that have held their connections longest.

        At most a quarter of all connections is released within 2 s.
        """
        now = asyncio.get_running_loop().time()
        if now - self._turned < TURN:
            return
        self._turned = now
        for oldest in list(self._following)[: min(self._waiting, max(1, self._limit // 4))]:
            del self._following[oldest]
            oldest()
