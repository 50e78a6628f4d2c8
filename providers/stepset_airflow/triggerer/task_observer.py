"""The observer of a run that a trigger follows; writes the task's log and the run's page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stepset.watch.lines import OpenLine
from stepset.watch.run_lines import RunLines

if TYPE_CHECKING:
    from stepset.backends.kubernetes.logs.run_logs import PodOutput
    from stepset.run_status import LogLine, RunStatus
    from stepset_airflow.logs.task_log import StatusCallback, TaskLog
    from stepset_airflow.page.async_writer import AsyncPageWriter
    from stepset_airflow.triggerer.log_lease import LogLease, Position

_SLICE = 50
"""Lines that are written before other tasks of the event loop run."""
_LONG = 1 << 20
"""Minimum characters of a line that a thread writes: logging 8 MiB takes 0.15 s of CPU."""


class TaskObserver:
    """Writes a run's log and page unless another triggerer does; calls `callbacks` with each status, in threads.

    `positions` returns the positions up to which the pods' logs were written.
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
        """The position in the log, for another triggerer."""
        return {"reported": self._task_log.reported, "printed": self._positions(), "at": self._at}

    async def on_output(self, output: PodOutput) -> None:
        """Writes lines that no triggerer has written yet."""
        known = output.position is None
        await self._write(self._lines.feed(output.pod, output.batch, time.monotonic(), known=known))
        if not known:
            self._at = datetime.now(UTC).isoformat()
        self._lease.mark_written()

    async def on_status(self, status: RunStatus) -> None:
        await self._lease.block_if_taken_over()
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
