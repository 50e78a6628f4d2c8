"""How far a trigger has written its task's log, stored in an XCom for the triggerer that takes the trigger over.

Airflow starts the triggers of a killed triggerer elsewhere, from the fields they were deferred with. A triggerer that
stood still for a while continues to write although another one has its triggers. So each triggerer notes its own id and
what it has written, if anything. Lines that it wrote after its last note are read from its log file, so nothing is
lost.
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
from stepset_airflow.triggerer.log_backpressure import all_read, room

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

KEY = "stepset_shown"
"""Key of the XCom; it exists while the task is deferred."""

_EVERY = 2.0
"""Minimum seconds between two notes of a trigger."""
_LEAVES = 30.0
"""Maximum seconds to wait until the triggerer's main process has read the log, before the event is sent."""
SETTLES = 5.0
"""Minimum seconds between the start of a trigger and its event. Airflow fails a deferred task whose event arrives
before the worker's report that the task is deferred, which takes seconds on a busy machine (apache/airflow issue
72716)."""
_FORGETS = 2.0
"""Maximum seconds to delete the note: a triggerer that shuts down may not answer any more."""
_BETWEEN = 0.1
"""Minimum seconds between two notes of all triggers of an event loop: the triggerer writes them to its database."""
_STOOD_STILL = 3.0
"""Seconds without a turn after which another triggerer may have the triggers; less than Airflow waits before that."""

Position = Mapping[str, Any]
"""What is written, as plain data: `told` (TaskLog.told), `printed` (RunFollower.positions), `at` (of the last line)."""
log = structlog.get_logger(logger_name=__name__)


class LogLease:
    """The notes of one trigger and of its predecessor; a trigger without a task instance (`dag.test()`) notes nothing.

    Attributes:
        before: the position that a predecessor has noted, else the one at which the task was deferred.
        written: the lines that the predecessor has written after that.
    """

    def __init__(self, trigger: BaseTrigger, position: Position, loop: _Loop) -> None:
        self._trigger, self._loop = trigger, loop
        self._me = uuid.uuid4().hex
        self._stalls = loop.stalls()
        self._written = asyncio.Event()
        self._noted = self._lost = False
        self.before, self.written = position, list[str]()

    async def find(self) -> None:
        """Looks for a predecessor, which does not write any more after this."""
        try:
            found = await _note_of(self._trigger)
        except AirflowRuntimeError as error:
            log.warning(f"whether another triggerer has written to this log before is not known: {error}")
            found = {}
        self.before = found.get("position", self.before)
        if found or await self._read():
            await self._note(self.before)
            await self._read()  # the predecessor may have written until that note

    async def _read(self) -> bool:
        """Reads what a predecessor has written and not noted; returns whether there is something."""
        if (ti := self._trigger.task_instance) is not None:
            self.written = await asyncio.to_thread(written_after, ti, str(self.before.get("at", "")))
        return bool(self.written)

    async def keep(self, position: Callable[[], Position]) -> None:
        """Notes what is written, indefinitely; `position` returns what has been written until now."""
        while True:
            await self._written.wait()
            self._written.clear()
            now = position()
            await asyncio.sleep(_EVERY)
            await all_read()
            await self.may_write()
            await self._note(now)

    async def may_write(self) -> None:
        """Returns at once, or never if another triggerer has the trigger and writes in this one's place."""
        if (stalls := self._loop.stalls()) != self._stalls:
            with suppress(AirflowRuntimeError):  # without an answer it writes: twice is better than never
                self._lost = (await _note_of(self._trigger)).get("by", "" if self._noted else self._me) != self._me
            self._stalls = stalls
        if self._lost:
            await asyncio.Event().wait()  # Airflow cancels the trigger as soon as it notices that, too

    async def may_write_a_line(self) -> None:
        """As `may_write`, for one of many lines: also waits until there is room for it, which may take seconds."""
        await room()
        while self._lost or self._loop.stalls() != self._stalls:
            await self.may_write()
            await room()  # other triggers have waited for Airflow's answer as well

    def wrote(self) -> None:
        self._written.set()

    async def _note(self, position: Position) -> None:
        async with self._loop.turn:
            value = {"trigger": self._trigger.trigger_id, "by": self._me, "position": position}
            try:
                await _ask(self._trigger, "SetXCom", value=value)
                self._noted = self._trigger.task_instance is not None
            except AirflowRuntimeError as error:
                log.warning(f"what was written to this log cannot be noted for another triggerer: {error}")
            await asyncio.sleep(_BETWEEN)


async def settle(trigger: BaseTrigger, begun: float) -> None:
    """Waits until a trigger that began at `begun`, by the event loop's clock, may send its event.

    First Airflow must know that the task is deferred, and must have read what the trigger wrote: a triggerer stops
    writing to the log of a trigger once it has ended, and receives the end and the lines on different channels (airflow
    3.3 triggerer_job_runner.py, logger_cache).
    """
    if trigger.task_instance is None:
        return
    await asyncio.sleep(begun + SETTLES - asyncio.get_running_loop().time())
    await all_read(_LEAVES)


async def forget(trigger: BaseTrigger) -> None:
    """Deletes a trigger's note; the last thing a trigger does, after its event.

    Airflow continues the task meanwhile, and then cancels the trigger to confirm the event. If this raised the
    cancellation, Airflow would mistake it for a user's action and call `on_kill`.
    """
    if trigger.task_instance is None:
        return
    with suppress(asyncio.CancelledError, AirflowRuntimeError):
        await wait_uncancelled(spawn(_forget(trigger)), _FORGETS)


async def _forget(trigger: BaseTrigger) -> None:
    if await _note_of(trigger):  # a note of a later deferral stays
        await _ask(trigger, "DeleteXCom")


async def _note_of(trigger: BaseTrigger) -> Mapping[str, Any]:
    """Returns what is noted of a trigger's deferral; empty: nothing."""
    found = getattr(await _ask(trigger, "GetXCom"), "value", None)
    return found if isinstance(found, dict) and found.get("trigger") == trigger.trigger_id else {}


async def _ask(trigger: BaseTrigger, what: str, **more: Any) -> Any:
    """Sends a request to Airflow through the triggerer; bypasses a deployment's XCom backend, which may block."""
    ti = trigger.task_instance
    if ti is None:
        return None
    index = map_index_of(ti)
    about = {"key": KEY, "dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": index}
    return await send_to_supervisor(what, **about, **more)


class _Loop:
    """What the triggers of an event loop share: a lock for notes, and a task that detects when the loop stood still."""

    def __init__(self) -> None:
        self.users = 0
        self.turn = asyncio.Lock()
        self._beaten, self._stalls = time.monotonic(), 0
        self.pulse = asyncio.create_task(self._beat())

    def stalls(self) -> int:
        """How often the loop stood still for so long that another triggerer may have taken the triggers."""
        if time.monotonic() - self._beaten > _STOOD_STILL:
            self._stalls += 1
            self._beaten = time.monotonic()
        return self._stalls

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.stalls()
            self._beaten = time.monotonic()


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()


@asynccontextmanager
async def lease_log(trigger: BaseTrigger, position: Position) -> AsyncIterator[LogLease]:
    """Takes over what a predecessor of a running trigger has written; `position` is the one at the deferral."""
    running = asyncio.get_running_loop()
    loop = _loops.get(running)
    if loop is None:
        loop = _loops[running] = _Loop()
    loop.users += 1
    try:
        lease = LogLease(trigger, position, loop)
        await lease.find()
        yield lease
    finally:
        loop.users -= 1
        if not loop.users:
            loop.pulse.cancel()
            del _loops[running]
