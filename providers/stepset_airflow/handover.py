"""Where a trigger's writing stands, kept in an XCom of its task for the triggerer that takes its trigger over.

Used by triggers.py. A triggerer that is killed says nothing any more, and Airflow starts its triggers anew elsewhere
from the fields they were deferred with; one that stood still for a while goes on writing although another has its work.
So what was written is noted as it is written, with who wrote it. It is noted after the fact: what a triggerer has
written in its last moments before it is killed is written again, and nothing is lost.
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

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

KEY = "stepset_shown"
"""Of the XCom; it is there while the task is deferred."""

EVERY = 2.0
"""Seconds between two looks whether there is something to note."""
_BETWEEN = 0.1
"""Seconds between two notes of all triggers of an event loop together: the triggerer writes them to its database."""
_STOOD_STILL = 3.0
"""Seconds without a turn after which somebody else may have the trigger; less than Airflow waits before it gives it."""

Position = Mapping[str, Any]
log = structlog.get_logger(logger_name=__name__)
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Handover:
    """What one trigger notes, and finds of its predecessor's.

    Without a task instance, as `dag.test()` runs triggers, it does nothing.

    Args:
        trigger: whose.
    """

    def __init__(self, trigger: BaseTrigger) -> None:
        self._trigger = trigger
        self._me = uuid.uuid4().hex
        self._noted: Position | None = None
        self._turn = time.monotonic()
        self._lost = False

    async def find(self) -> Position:
        """What a predecessor has written; from here on it is not to write any more. Empty: there was none."""
        try:
            found = await self._read()
        except AirflowRuntimeError as error:
            log.warning(f"whether another triggerer has written to this log before is not known: {error}")
            return {}
        if not found:
            return {}
        position: Position = found["position"]
        await self._write(position)
        return position

    @asynccontextmanager
    async def kept(self, position: Callable[[], Position]) -> AsyncIterator[None]:
        """Notes what is written meanwhile.

        Args:
            position: what has been written until now, as plain data.
        """
        keeper = asyncio.create_task(self._keep(position))
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def may_write(self) -> None:
        """Comes back at once, or never where another triggerer has the trigger by now and writes in its place."""
        if time.monotonic() - self._turn > _STOOD_STILL:
            with suppress(AirflowRuntimeError):  # who does not know writes: twice is better than never
                by = (await self._read()).get("by", "" if self._noted is not None else self._me)
                self._lost = by != self._me
            self._turn = time.monotonic()
        if self._lost:
            await asyncio.Event().wait()  # Airflow cancels it as soon as it sees that too

    async def forget(self) -> None:
        """Everything is written, and the event says so."""
        if self._noted is not None:
            with suppress(AirflowRuntimeError):  # it says which deferral it is of, and harms no other
                await self._ask("DeleteXCom")

    async def _keep(self, position: Callable[[], Position]) -> None:
        while True:
            now = position()
            # What was written has left this process by then.
            for _ in range(int(EVERY)):
                await asyncio.sleep(1)
                await self.may_write()
                self._turn = time.monotonic()
            if now != self._noted:
                await self._write(now)

    async def _write(self, position: Position) -> None:
        async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            value = {"trigger": self._trigger.trigger_id, "by": self._me, "position": position}
            try:
                await self._ask("SetXCom", value=value)
            except AirflowRuntimeError as error:
                log.warning(f"what was written to this log cannot be noted for another triggerer: {error}")
            self._noted = position
            await asyncio.sleep(_BETWEEN)

    async def _read(self) -> Mapping[str, Any]:
        """What is noted of this very deferral; empty: nothing."""
        found = getattr(await self._ask("GetXCom"), "value", None)
        return found if isinstance(found, dict) and found.get("trigger") == self._trigger.trigger_id else {}

    async def _ask(self, what: str, **more: Any) -> Any:
        """Asks Airflow by way of the triggerer, past a deployment's XCom backend, which may block."""
        from airflow.sdk.execution_time import comms, task_runner

        ti = self._trigger.task_instance
        if ti is None:
            return None
        index = -1 if ti.map_index is None else ti.map_index
        about = {"key": KEY, "dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": index}
        return await task_runner.SUPERVISOR_COMMS.asend(getattr(comms, what)(**about, **more))
