"""Stores the data of a run's page while a triggerer follows the run.

The supervisor of a triggerer handles one write at a time. A triggerer may follow many runs. Therefore throttle.py
limits the total number of writes.
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
    from stepset.run_status import RunStatus

_log = logging.getLogger(__name__)

LAST_WRITE_TIMEOUT = 10.0
"""Maximum seconds that a trigger waits for the last write before the trigger finishes."""

_all: WeakSet[AsyncPageWriter] = WeakSet()


class AsyncPageWriter:
    """Stores the JSON document of a run's page. All methods run in an event loop.

    Args:
        key: the fields of the task instance's TaskKey. If `key` is None, no document is stored.
        extra_fields: additional fields of the document, which are not part of a run's status.
    """

    def __init__(self, key: Mapping[str, Any] | None, extra_fields: Mapping[str, Any]) -> None:
        self._key = None if key is None else TaskKey(**key)
        self._extra_fields = extra_fields
        self._history = RunHistory(extra_fields)
        self._changed = asyncio.Event()
        self._written: RunStatus | None = None
        self._urgent = self._failing = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Reads the stored document of the page, and starts to write changes.

        Later writes add phases, events and metrics to the stored document.
        """
        if self._key is None:
            return
        try:
            self._history = RunHistory(self._extra_fields, await self._key.aload())
        except Exception as error:  # noqa: BLE001  # the run is followed even without its page
            self._warn(error)
        _all.add(self)
        self._task = asyncio.create_task(self._write_changes())

    def record(self, status: RunStatus) -> None:
        """Records a new status of the run. The status is written to the document later."""
        if self._task is not None:
            self._urgent |= self._history.record(status, time.time())
            self._changed.set()

    async def finish(self) -> None:
        """Writes pending changes and stops.

        This method is called if the run has finished, or before another process begins to follow the run.
        """
        if self._task is None:
            return
        await self.close()
        if self._history.status is not self._written:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WRITE_TIMEOUT):
                    await self._write()

    async def close(self) -> None:
        """Stops without writing pending changes. The triggerer may be shutting down, so a write could take too long."""
        _all.discard(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _write_changes(self) -> None:
        while True:
            await self._changed.wait()
            await self._write()
            status = self._history.status
            age = time.time() - status.created if status is not None else 0.0
            throttle, waited = WriteThrottle(len(_all)), 0.0
            # If an urgent change is recorded while this loop waits, `throttle.wait` returns a smaller number.
            while waited < throttle.wait(age, self._urgent):
                await asyncio.sleep(min(1.0, throttle.wait(age, self._urgent)))
                waited += 1.0

    async def _write(self) -> None:
        assert self._key is not None
        self._changed.clear()
        self._urgent = False
        status, document = self._history.status, self._history.document(time.time())
        try:
            await self._key.asave(document)
            self._failing = False
        except Exception as error:  # noqa: BLE001  # the run is followed even without its page
            self._warn(error)
        self._written = status

    def _warn(self, error: Exception) -> None:
        if not self._failing:
            _log.warning("the page of %s cannot be read or written, and is retried: %s", self._key, error)
        self._failing = True
