"""Keeps a run's page written while a triggerer follows the run.

pace.py limits what one triggerer writes for all its runs together: its supervisor handles one writing at a time, beside
everything else it does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.page_xcom import TaskKey
from stepset_airflow.page.throttle import WriteThrottle

if TYPE_CHECKING:
    from stepset.watch.state import RunStatus

_log = logging.getLogger(__name__)

LAST = 10.0
"""Maximum seconds the end of a trigger waits for its last writing."""

_all: WeakSet[AsyncPageWriter] = WeakSet()


class AsyncPageWriter:
    """Writes a run's page from an event loop; `key` holds the fields of the TaskKey, None: no page is written."""

    def __init__(self, key: Mapping[str, Any] | None, about: Mapping[str, Any]) -> None:
        self._key = None if key is None else TaskKey(**key)
        self._about = about
        self._chronicle = RunHistory(about)
        self._news = asyncio.Event()
        self._written: RunStatus | None = None
        self._urgent = self._failing = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Continues the stored page."""
        if self._key is None:
            return
        try:
            self._chronicle = RunHistory(self._about, await self._key.aload())
        except Exception as error:  # noqa: BLE001  # a run is followed without its page, too
            self._warn(error)
        _all.add(self)
        self._task = asyncio.create_task(self._write_on())

    def see(self, status: RunStatus) -> None:
        """Takes a new status."""
        if self._task is not None:
            self._urgent |= self._chronicle.see(status, time.time())
            self._news.set()

    async def finish(self) -> None:
        """Writes what is not written yet: the run is over, or followed elsewhere."""
        if self._task is None:
            return
        await self.close()
        if self._chronicle.status is not self._written:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST):
                    await self._write()

    async def close(self) -> None:
        """Stops without another writing: the triggerer may be shutting down."""
        _all.discard(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _write_on(self) -> None:
        while True:
            await self._news.wait()
            await self._write()
            status = self._chronicle.status
            age = time.time() - status.created if status is not None else 0.0
            pace, waited = WriteThrottle(len(_all)), 0.0
            # An urgent change may come at any time during the wait.
            while waited < pace.wait(age, self._urgent):
                await asyncio.sleep(min(1.0, pace.wait(age, self._urgent)))
                waited += 1.0

    async def _write(self) -> None:
        assert self._key is not None
        self._news.clear()
        self._urgent = False
        status, document = self._chronicle.status, self._chronicle.document(time.time())
        try:
            await self._key.asave(document)
            self._failing = False
        except Exception as error:  # noqa: BLE001  # whatever it is: a run is followed without its page, too
            self._warn(error)
        self._written = status

    def _warn(self, error: Exception) -> None:
        if not self._failing:
            _log.warning("the page of %s cannot be read or written: %s; it is tried again", self._key, error)
        self._failing = True
