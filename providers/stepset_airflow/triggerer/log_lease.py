"""A lease on a task's log, stored in an XCom: which triggerer writes the log, and how far it has written.

Airflow starts the triggers of a killed triggerer in another one, with the fields from their deferral. A triggerer that
stalled continues to write although another one has its triggers. Therefore each triggerer stores its own id and its
position in the lease. The successor reads later lines from the log file, so that no line is lost, and normally none
is repeated.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import structlog
from airflow.sdk.exceptions import AirflowRuntimeError

from stepset_airflow.airflow_internals import send_to_supervisor
from stepset_airflow.identity import map_index_of
from stepset_airflow.logs.predecessor_log import written_after
from stepset_airflow.triggerer.cancellation import spawn, wait_uncancelled
from stepset_airflow.triggerer.log_backpressure import wait_for_space, wait_until_read
from stepset_airflow.triggerer.stored_lease import read_lease

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

KEY = "stepset_shown"
"""Key of the XCom, which exists while the task is deferred."""

_SAVE_INTERVAL = 2.0
"""Minimum seconds between two writes of a lease."""
_READ_TIMEOUT = 30.0
"""Maximum seconds that an event waits until the triggerer's main process has read the log."""
MIN_DEFERRAL = 5.0
"""Minimum seconds between the start of a trigger and its event. Airflow fails a deferred task whose event arrives
before the worker's report of the deferral, which takes seconds on a busy machine (apache/airflow#72716)."""
_DELETE_TIMEOUT = 2.0
"""Maximum seconds to delete the lease: a triggerer that is shutting down may not answer."""
_SHARED_SAVE_INTERVAL = 0.1
"""Minimum seconds between two writes of all triggers of an event loop, because each write updates a database."""
_STALL = 3.0
"""Seconds without an iteration of the event loop after which the lease is checked. Airflow moves the triggers later
(`triggerer_health_check_threshold`)."""

Position = Mapping[str, Any]
"""What was written, as plain data.

`reported` is TaskLog.reported, `printed` RunFollower.positions, `at` the time of the last line.
"""
log = structlog.get_logger(logger_name=__name__)


class LogLease:
    """The lease of a trigger; a trigger without a task instance (`dag.test()`) stores none.

    Attributes:
        before: the position in a predecessor's lease, else that of the deferral.
        written: the lines that the predecessor wrote after that position.
    """

    def __init__(self, trigger: BaseTrigger, position: Position, loop: _Loop) -> None:
        self._trigger, self._loop = trigger, loop
        self._me = uuid.uuid4().hex
        self._stalls = loop.stalls()
        self._written = asyncio.Event()
        self._saved = self._lost = False
        self.before, self.written = position, list[str]()

    async def acquire(self) -> None:
        """Takes the log over from a predecessor, if one exists; the predecessor stops writing."""
        try:
            found = await _lease_of(self._trigger)
        except (AirflowRuntimeError, ValueError) as error:
            log.warning(f"the log position of an earlier triggerer cannot be read: {error}")
            found = {}
        self.before = found.get("position", self.before)
        if found or await self._read():
            await self._save(self.before)
            await self._read()  # the predecessor may have written until its lease was replaced

    async def _read(self) -> bool:
        """Reads the lines that a predecessor wrote after its stored position; returns whether there are any."""
        if (ti := self._trigger.task_instance) is not None:
            self.written = await asyncio.to_thread(written_after, ti, str(self.before.get("at", "")))
        return bool(self.written)

    async def renew(self, position: Callable[[], Position]) -> None:
        """Stores the position after each change, until cancelled; `position` returns the current one."""
        while True:
            await self._written.wait()
            self._written.clear()
            now = position()
            await asyncio.sleep(_SAVE_INTERVAL)
            await wait_until_read()
            await self.block_if_taken_over()
            await self._save(now)

    async def block_if_taken_over(self) -> None:
        """Blocks forever if another triggerer has taken over the trigger; otherwise returns at once."""
        if (stalls := self._loop.stalls()) != self._stalls:
            # If the lease cannot be read, continue: lines may be repeated, not lost.
            with suppress(AirflowRuntimeError, ValueError):
                self._lost = (await _lease_of(self._trigger)).get("by", "" if self._saved else self._me) != self._me
            self._stalls = stalls
        if self._lost:
            await asyncio.Event().wait()  # until Airflow cancels the trigger

    async def wait_to_write_line(self) -> None:
        """Like `block_if_taken_over`, but also waits for space in the socket, for up to some seconds."""
        await wait_for_space()
        while self._lost or self._loop.stalls() != self._stalls:
            await self.block_if_taken_over()
            await wait_for_space()  # other triggers may have filled the socket meanwhile

    def mark_written(self) -> None:
        self._written.set()

    async def _save(self, position: Position) -> None:
        async with self._loop.saving:
            lease = {"trigger": self._trigger.trigger_id, "by": self._me, "position": position}
            try:
                await _send(self._trigger, "SetXCom", value=lease)
                self._saved = self._trigger.task_instance is not None
            except AirflowRuntimeError as error:
                log.warning(f"the log position cannot be stored for another triggerer: {error}")
            await asyncio.sleep(_SHARED_SAVE_INTERVAL)


async def wait_before_event(trigger: BaseTrigger, started: float) -> None:
    """Waits until a trigger that started at `started`, by the event loop's clock, may send its event.

    Airflow must have registered the deferral, and must have read the trigger's lines: a triggerer closes the log of a
    trigger that has ended, and receives the end and the lines on different channels (airflow 3.3
    triggerer_job_runner.py, logger_cache).
    """
    if trigger.task_instance is None:
        return
    await asyncio.sleep(started + MIN_DEFERRAL - asyncio.get_running_loop().time())
    await wait_until_read(_READ_TIMEOUT)


async def delete_lease(trigger: BaseTrigger) -> None:
    """Deletes a trigger's lease, after the trigger's event.

    Meanwhile Airflow continues the task, and cancels the trigger to confirm the event. If this function raised
    CancelledError, Airflow would treat it as a user's action and call `on_kill`.
    """
    if trigger.task_instance is None:
        return
    with suppress(asyncio.CancelledError, AirflowRuntimeError):
        await wait_uncancelled(spawn(_delete_lease(trigger)), _DELETE_TIMEOUT)


async def _delete_lease(trigger: BaseTrigger) -> None:
    with suppress(ValueError):  # an invalid lease is deleted, too
        if not await _lease_of(trigger):  # the lease of a later deferral is kept
            return
    await _send(trigger, "DeleteXCom")


async def _lease_of(trigger: BaseTrigger) -> Mapping[str, Any]:
    """Returns the lease of a trigger's deferral; empty if there is none. Raises ValueError if it is invalid."""
    return read_lease(getattr(await _send(trigger, "GetXCom"), "value", None), trigger.trigger_id)


async def _send(trigger: BaseTrigger, message: str, **more: Any) -> Any:
    """Sends an XCom message to Airflow; bypasses a deployment's XCom backend, which may block."""
    ti = trigger.task_instance
    if ti is None:
        return None
    index = map_index_of(ti)
    fields = {"key": KEY, "dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": index}
    return await send_to_supervisor(message, **fields, **more)


class _Loop:
    """State that the triggers of an event loop share: a lock for writes, and a task that detects stalls of the loop."""

    def __init__(self) -> None:
        self.users = 0
        self.saving = asyncio.Lock()
        self._last_run, self._stalls = time.monotonic(), 0
        self.monitor = asyncio.create_task(self._monitor())

    def stalls(self) -> int:
        """Returns how often the loop stalled for so long that another triggerer may have taken the triggers."""
        if time.monotonic() - self._last_run > _STALL:
            self._stalls += 1
            self._last_run = time.monotonic()
        return self._stalls

    async def _monitor(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.stalls()
            self._last_run = time.monotonic()


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()


@asynccontextmanager
async def lease_log(trigger: BaseTrigger, position: Position) -> AsyncIterator[LogLease]:
    """Takes the log over from a trigger's predecessor, and yields the lease; `position` is that of the deferral."""
    running = asyncio.get_running_loop()
    loop = _loops.get(running)
    if loop is None:
        loop = _loops[running] = _Loop()
    loop.users += 1
    try:
        lease = LogLease(trigger, position, loop)
        await lease.acquire()
        yield lease
    finally:
        loop.users -= 1
        if not loop.users:
            loop.monitor.cancel()
            del _loops[running]
