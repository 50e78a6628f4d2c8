"""Limits how many logs are read at the same time. If there are more, the readers that follow logs take turns."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

MAX_LOGS = 512
"""The maximum number of logs that are read at the same time; each needs a connection and its file descriptor."""
TURN = 2.0
"""Seconds for which a reader waits for a connection before a reader that follows a log gives up its own."""

GiveUp = Callable[[], None]


class LogConnections:
    """Limits how many logs are read at the same time; default: 512, or half of the process's file descriptors."""

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
        """Holds a connection for the block; calls `give_up`, which must end the block, if other callers wait."""
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
        """Makes the readers that have followed longest give up their connections: at most a quarter of all per 2 s."""
        now = asyncio.get_running_loop().time()
        if now - self._turned < TURN:
            return
        self._turned = now
        for oldest in list(self._following)[: min(self._waiting, max(1, self._limit // 4))]:
            del self._following[oldest]
            oldest()
