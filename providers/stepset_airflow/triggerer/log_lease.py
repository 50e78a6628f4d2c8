"""The lease on a task's log. The lease is an XCom.

The lease contains an id of the trigger that writes the log, and the position of this trigger in the log.

If a triggerer is killed, Airflow starts the same triggers in another triggerer. The new triggerer receives only the
fields that were stored when the tasks were deferred. If a triggerer was only slow, Airflow may also start the triggers
in another triggerer, and then both triggerers would write to the log. Therefore each trigger stores an id and the
position in the log as a lease. The new trigger continues at the stored position. The old trigger may have written
further lines after this position. The new trigger finds these lines in the log file. Thus no line is lost, and normally
no line is repeated.
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
from stepset_airflow.transferable import transferable
from stepset_airflow.triggerer.cancellation import spawn, wait_uncancelled
from stepset_airflow.triggerer.log_backpressure import wait_for_space, wait_until_read
from stepset_airflow.triggerer.stored_lease import read_lease

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

KEY = "stepset_shown"
"""The key of the XCom. The XCom exists while the task is deferred."""

_SAVE_INTERVAL = 2.0
"""Minimum number of seconds between two writes of one lease."""
_READ_TIMEOUT = 30.0
"""Maximum seconds that a trigger waits, before it sends the event, until the main process has read the log."""
MIN_DEFERRAL = 5.0
"""Minimum seconds between the start of a trigger and the event of the trigger.

If the event arrives before the worker has reported the deferral, Airflow ends the task as failed. On a busy machine,
the report takes seconds (apache/airflow#72716).
"""
_DELETE_TIMEOUT = 2.0
"""Maximum seconds to wait for the deletion of the lease. A triggerer that is shutting down may not answer."""
_SHARED_SAVE_INTERVAL = 0.1
"""Minimum seconds between two writes in an event loop, of any leases. Each write updates a database."""
_STALL = 3.0
"""If the event loop stalls for more than this number of seconds, the lease is read again.

The number is smaller than `triggerer_health_check_threshold`. After that time, Airflow starts the triggers of a stalled
triggerer in another triggerer.
"""

Position = Mapping[str, Any]
"""The position in a task's log up to which a process has written the log, as plain data.

The field `reported` is the value of TaskLog.reported. The field `printed` is the value of RunFollower.positions. The
field `at` is the time of the last line.
"""
log = structlog.get_logger(logger_name=__name__)


class LogLease:
    """The lease of a trigger. In `dag.test()`, a trigger has no task instance, and the lease is not stored.

    Attributes:
        before: the position that the predecessor stored in its lease. If there is no predecessor, the position in the
            log when the task was deferred.
        written: the lines that the predecessor wrote after the position `before`.
    """

    def __init__(self, trigger: BaseTrigger, position: Position, loop: _Loop) -> None:
        self._trigger, self._loop = trigger, loop
        self._me = uuid.uuid4().hex
        self._stalls = loop.stalls()
        self._written = asyncio.Event()
        self._saved = self._lost = False
        self.before, self.written = position, list[str]()

    async def acquire(self) -> None:
        """Takes over the log from a predecessor, if a predecessor exists. The predecessor then stops writing."""
        try:
            found = await _lease_of(self._trigger)
        except (AirflowRuntimeError, ValueError) as error:
            log.warning(f"the log position of an earlier triggerer cannot be read: {error}")
            found = {}
        self.before = found.get("position", self.before)
        if found or await self._read():
            await self._save(self.before)
            await self._read()  # the predecessor may have written more lines before its lease was replaced

    async def _read(self) -> bool:
        """Reads the lines that a predecessor wrote after the stored position. Returns whether there are such lines."""
        if (ti := self._trigger.task_instance) is not None:
            self.written = await asyncio.to_thread(written_after, ti, str(self.before.get("at", "")))
        return bool(self.written)

    async def renew(self, position: Callable[[], Position]) -> None:
        """Stores the position after each change. Runs until the coroutine is cancelled.

        `position` is a function that returns the current position.
        """
        while True:
            await self._written.wait()
            self._written.clear()
            now = position()
            await asyncio.sleep(_SAVE_INTERVAL)
            await wait_until_read()
            await self.block_if_taken_over()
            await self._save(now)

    async def block_if_taken_over(self) -> None:
        """Blocks forever if another triggerer has taken over the trigger. Otherwise, returns immediately."""
        if (stalls := self._loop.stalls()) != self._stalls:
            # If the lease cannot be read, the trigger continues. Lines may then be repeated, but no line is lost.
            with suppress(AirflowRuntimeError, ValueError):
                self._lost = (await _lease_of(self._trigger)).get("by", "" if self._saved else self._me) != self._me
            self._stalls = stalls
        if self._lost:
            await asyncio.Event().wait()  # until Airflow cancels the trigger

    async def wait_to_write_line(self) -> None:
        """Waits a limited time for space in the socket of the log.

        The method blocks forever if another triggerer has taken over the trigger.
        """
        await wait_for_space()
        while self._lost or self._loop.stalls() != self._stalls:
            await self.block_if_taken_over()
            await wait_for_space()  # other triggers may have filled the socket in the meantime

    def mark_written(self) -> None:
        self._written.set()

    async def _save(self, position: Position) -> None:
        async with self._loop.saving:
            lease = {"trigger": self._trigger.trigger_id, "by": self._me, "position": transferable(position)}
            try:
                await _send(self._trigger, "SetXCom", value=lease)
                self._saved = self._trigger.task_instance is not None
            except AirflowRuntimeError as error:
                log.warning(f"the log position cannot be stored for another triggerer: {error}")
            await asyncio.sleep(_SHARED_SAVE_INTERVAL)


async def wait_before_event(trigger: BaseTrigger, started: float) -> None:
    """Waits until a trigger may send the event.

    First, Airflow must have registered the deferral. Second, the main process of the triggerer must have read the log
    lines of the trigger, because the main process closes the log of a finished trigger. The main process receives
    the lines on one channel, and learns on another channel that the trigger has finished (airflow 3.3
    triggerer_job_runner.py, logger_cache).

    Args:
        started: the time when the trigger started, by the clock of the event loop.
    """
    if trigger.task_instance is None:
        return
    await asyncio.sleep(started + MIN_DEFERRAL - asyncio.get_running_loop().time())
    await wait_until_read(_READ_TIMEOUT)


async def delete_lease(trigger: BaseTrigger) -> None:
    """Deletes the lease of a trigger after the trigger has sent the event.

    While this function runs, Airflow continues the task and cancels the trigger. The cancellation confirms that Airflow
    has received the event. The function does not raise CancelledError. If the function raised CancelledError, Airflow
    would treat the cancellation as an action of a user on the task, and would call `on_kill`.
    """
    if trigger.task_instance is None:
        return
    with suppress(asyncio.CancelledError, AirflowRuntimeError):
        await wait_uncancelled(spawn(_delete_lease(trigger)), _DELETE_TIMEOUT)


async def _delete_lease(trigger: BaseTrigger) -> None:
    with suppress(ValueError):  # an invalid lease is also deleted
        if not await _lease_of(trigger):  # the lease of a later deferral must not be deleted
            return
    await _send(trigger, "DeleteXCom")


async def _lease_of(trigger: BaseTrigger) -> Mapping[str, Any]:
    """Returns the lease that is stored for the task deferral to which a trigger belongs.

    Returns an empty mapping if no lease is stored for this deferral.

    Raises ValueError if the lease is invalid.
    """
    return read_lease(getattr(await _send(trigger, "GetXCom"), "value", None), trigger.trigger_id)


async def _send(trigger: BaseTrigger, message: str, **more: Any) -> Any:
    """Sends Airflow a message about the XCom of the lease, and returns Airflow's answer.

    The message bypasses the XCom backend of the deployment, because the backend could block the event loop.
    """
    ti = trigger.task_instance
    if ti is None:
        return None
    index = map_index_of(ti)
    fields = {"key": KEY, "dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": index}
    return await send_to_supervisor(message, **fields, **more)


class _Loop:
    """The state that all triggers of an event loop share.

    The state consists of a lock for writes of leases, and of a task that detects stalls of the event loop.
    """

    def __init__(self) -> None:
        self.users = 0
        self.saving = asyncio.Lock()
        self._last_run, self._stalls = time.monotonic(), 0
        self.monitor = asyncio.create_task(self._monitor())

    def stalls(self) -> int:
        """Returns the number of long stalls of the event loop.

        After a long stall, the triggers of the event loop may also run in another triggerer.
        """
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
    """Yields the lease on a task's log. If the trigger has a predecessor, takes over the log from the predecessor.

    `position` is the position in the log when the task was deferred.
    """
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
