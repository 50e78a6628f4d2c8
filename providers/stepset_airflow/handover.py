"""Where a trigger's writing stands, kept in an XCom of its task for the triggerer that takes its trigger over.

Used by triggers.py. A triggerer that is killed says nothing any more, and Airflow starts its triggers anew elsewhere
from the fields they were deferred with; one that stood still for a while goes on writing although another has its work.
So what was written is noted once it is written, with who wrote it; what a triggerer has written after its last note is
found in its log, and nothing is lost. Who only waits notes nothing.
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

from stepset_airflow.cancellation import spawn, wait_uncancelled
from stepset_airflow.identity import map_index_of
from stepset_airflow.log_channel import all_read, room
from stepset_airflow.trigger_log import written_after

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

KEY = "stepset_shown"
"""Of the XCom; it is there while the task is deferred."""

_EVERY = 2.0
"""Seconds between two notes of a trigger, at least."""
_LEAVES = 30.0
"""Seconds that what was written has to reach the triggerer's main process before the event does, at most."""
SETTLES = 5.0
"""Seconds between the start of a trigger and its event, at least: Airflow fails a deferred task whose event overtakes
the word that its worker has deferred it, which takes seconds where it is busy (apache/airflow issue 72716)."""
_FORGETS = 2.0
"""Seconds that a trigger has to forget: a triggerer that ends may not answer any more."""
_BETWEEN = 0.1
"""Seconds between two notes of all triggers of an event loop together: the triggerer writes them to its database."""
_STOOD_STILL = 3.0
"""Seconds without a turn after which somebody else may have the triggers; less than Airflow waits before that."""

Position = Mapping[str, Any]
"""What is written, as plain data: `told` (TaskLog.told), `printed` (RunFollower.positions), `at` (of the last line)."""
log = structlog.get_logger(logger_name=__name__)


class Handover:
    """What one trigger notes, and what it has found of its predecessor's.

    Args:
        trigger: whose; without a task instance, as `dag.test()` runs triggers, nothing is noted.
        position: where the writing stood when the task was deferred.
        loop: what the triggers of this event loop share.

    Attributes:
        before: where it stands, as far as a predecessor has noted it.
        written: what the predecessor has written after that.
    """

    def __init__(self, trigger: BaseTrigger, position: Position, loop: _Loop) -> None:
        self._trigger, self._loop = trigger, loop
        self._me = uuid.uuid4().hex
        self._stalls = loop.stalls()
        self._written = asyncio.Event()
        self._noted = self._lost = False
        self.before, self.written = position, list[str]()

    async def find(self) -> None:
        """Looks for a predecessor, who is not to write any more from here on."""
        try:
            found = await _note_of(self._trigger)
        except AirflowRuntimeError as error:
            log.warning(f"whether another triggerer has written to this log before is not known: {error}")
            found = {}
        self.before = found.get("position", self.before)
        if found or await self._read():
            await self._note(self.before)
            await self._read()  # until now it may have written

    async def _read(self) -> bool:
        """Looks for what a predecessor has written and not noted; whether there is something."""
        if (ti := self._trigger.task_instance) is not None:
            self.written = await asyncio.to_thread(written_after, ti, str(self.before.get("at", "")))
        return bool(self.written)

    async def keep(self, position: Callable[[], Position]) -> None:
        """Notes what is written, for ever.

        Args:
            position: what has been written until now, as plain data.
        """
        while True:
            await self._written.wait()
            self._written.clear()
            now = position()
            await asyncio.sleep(_EVERY)
            await all_read()
            await self.may_write()
            await self._note(now)

    async def may_write(self) -> None:
        """Comes back at once, or never where another triggerer has the trigger by now and writes in its place."""
        if (stalls := self._loop.stalls()) != self._stalls:
            with suppress(AirflowRuntimeError):  # who does not know writes: twice is better than never
                self._lost = (await _note_of(self._trigger)).get("by", "" if self._noted else self._me) != self._me
            self._stalls = stalls
        if self._lost:
            await asyncio.Event().wait()  # Airflow cancels it as soon as it sees that too

    async def may_write_a_line(self) -> None:
        """Comes back as soon as there is room for one of many lines, which may take seconds; else as `may_write`."""
        await room()
        while self._lost or self._loop.stalls() != self._stalls:
            await self.may_write()
            await room()  # others have waited for Airflow's answer as well

    def wrote(self) -> None:
        """Something was written."""
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
    """What a trigger does before it tells its event.

    It lets Airflow hear first that its task is deferred, and what it wrote be read: a triggerer writes no more to the
    log of a trigger that has ended, and hears of that another way than it gets the lines (airflow 3.3
    triggerer_job_runner.py, logger_cache).

    Args:
        trigger: whose; without a task instance, as `dag.test()` runs triggers, there is nobody who hears late.
        begun: the event loop's time at its start.
    """
    if trigger.task_instance is None:
        return
    await asyncio.sleep(begun + SETTLES - asyncio.get_running_loop().time())
    await all_read(_LEAVES)


async def forget(trigger: BaseTrigger) -> None:
    """What a trigger does last, its event told: what was noted of it is forgotten.

    Airflow goes on with the task meanwhile, and cancels the trigger as soon as it has: that says only that the event
    has come through. Let out of here, Airflow would take it for what a user did, and call `on_kill`.

    Args:
        trigger: whose; without a task instance nothing was noted.
    """
    if trigger.task_instance is None:
        return
    with suppress(asyncio.CancelledError, AirflowRuntimeError):
        await wait_uncancelled(spawn(_forget(trigger)), _FORGETS)


async def _forget(trigger: BaseTrigger) -> None:
    if await _note_of(trigger):  # by now there may be one of a later deferral
        await _ask(trigger, "DeleteXCom")


async def _note_of(trigger: BaseTrigger) -> Mapping[str, Any]:
    """What is noted of a trigger's deferral; empty: nothing."""
    found = getattr(await _ask(trigger, "GetXCom"), "value", None)
    return found if isinstance(found, dict) and found.get("trigger") == trigger.trigger_id else {}


async def _ask(trigger: BaseTrigger, what: str, **more: Any) -> Any:
    """Asks Airflow by way of the triggerer, past a deployment's XCom backend, which may block."""
    from airflow.sdk.execution_time import comms, task_runner

    ti = trigger.task_instance
    if ti is None:
        return None
    index = map_index_of(ti)
    about = {"key": KEY, "dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": index}
    return await task_runner.SUPERVISOR_COMMS.asend(getattr(comms, what)(**about, **more))


class _Loop:
    """What the triggers of an event loop share: turns to note in, and a pulse that tells when it stood still.

    Attributes:
        users: how many triggers there are.
        turn: of whoever notes.
    """

    def __init__(self) -> None:
        self.users = 0
        self.turn = asyncio.Lock()
        self._beaten, self._stalls = time.monotonic(), 0
        self.pulse = asyncio.create_task(self._beat())

    def stalls(self) -> int:
        """How often nobody had a turn for so long that somebody else may have the triggers by now."""
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
async def handing_over(trigger: BaseTrigger, position: Position) -> AsyncIterator[Handover]:
    """What a trigger takes over, and leaves for whoever takes it over.

    Args:
        trigger: one that runs.
        position: where the writing stood when its task was deferred.
    """
    running = asyncio.get_running_loop()
    loop = _loops.get(running)
    if loop is None:
        loop = _loops[running] = _Loop()
    loop.users += 1
    try:
        handover = Handover(trigger, position, loop)
        await handover.find()
        yield handover
    finally:
        loop.users -= 1
        if not loop.users:
            loop.pulse.cancel()
            del _loops[running]
