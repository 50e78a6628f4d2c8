"""Writes the log of the task and the page of the run while a trigger follows the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stepset.backends.kubernetes.listening import Observer
from stepset.watch.lines import OpenLine
from stepset.watch.run_lines import RunLines
from stepset_airflow.transferable import masked_status

if TYPE_CHECKING:
    from stepset.backends.kubernetes.logs.run_logs import PodOutput
    from stepset.run_status import LogLine, RunStatus
    from stepset_airflow.logs.task_log import StatusCallback, TaskLog
    from stepset_airflow.page.async_writer import AsyncPageWriter
    from stepset_airflow.triggerer.log_lease import LogLease, Position

_SLICE = 50
"""After this number of lines, other tasks of the event loop can run."""
_LONG = 1 << 20
"""If a line has more characters, a thread writes the line, because logging a long line takes much time."""


class TaskObserver(Observer):
    """The observer of a run, which writes the log of the task and the page of the run, and calls the callbacks.

    If another triggerer has taken over the trigger, the observer blocks and writes nothing.

    Args:
        task_log: the listener that writes the task's log.
        page: the writer of the run's page.
        lease: the lease on the task's log.
        sources: the sources whose lines are written. None means all sources.
        callbacks: functions that are called with each status. Each call runs in a thread.
        positions: a function that returns a position for each pod. The observer has processed the pod's log up to this
            position.
    """

    def __init__(
        self,
        task_log: TaskLog,
        page: AsyncPageWriter,
        lease: LogLease,
        sources: frozenset[str] | None,
        callbacks: tuple[StatusCallback, ...],
        positions: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._task_log, self._page, self._lease = task_log, page, lease
        self._sources, self._callbacks, self._positions = sources, callbacks, positions
        self._lines = RunLines()
        self._at = str(lease.before.get("at", ""))

    @property
    def position(self) -> Position:
        """The position in the log. Another triggerer can continue from this position."""
        return {"reported": self._task_log.reported, "printed": self._positions(), "at": self._at}

    async def on_output(self, output: PodOutput) -> None:
        """Writes the lines of `output`. Lines that another triggerer has already written are skipped."""
        known = output.position is None
        await self._write(self._lines.feed(output.pod, output.batch, time.monotonic(), known=known))
        if not known:
            self._at = datetime.now(UTC).isoformat()
        self._lease.mark_written()

    async def on_status(self, status: RunStatus) -> None:
        await self._lease.block_if_taken_over()
        status = masked_status(status)
        if status.phase.final:
            await self._write(self._lines.end_attempt())
        self._page.record(status)
        self._task_log.on_status(status)
        self._lease.mark_written()
        for callback in self._callbacks:
            await asyncio.to_thread(self._task_log.call, callback, status)

    async def on_tick(self) -> None:
        await self._write(self._lines.due(time.monotonic()))

    async def _write(self, lines: Iterable[LogLine | OpenLine]) -> None:
        for count, line in enumerate(lines, 1):
            if self._sources is None or line.source in self._sources:
                await self._lease.wait_to_write_line()
                if isinstance(line, OpenLine):
                    self._task_log.on_open_line(line)
                elif len(line.text) > _LONG:
                    await asyncio.to_thread(self._task_log.on_line, line)
                else:
                    self._task_log.on_line(line)
            if not count % _SLICE:
                await asyncio.sleep(0)
