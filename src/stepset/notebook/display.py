"""Shows a run in a notebook cell. The output of the cell contains the lines of the run, and a table of the ranks.

The table is updated in place. The thread of the run only stores lines and states. The thread that executes the cell
prints the lines and states. A kernel would not assign the output of another thread to the cell.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from stepset.backends.base import RunHandle
from stepset.html.calls import logs_call
from stepset.html.status import status_html, status_text
from stepset.printable import printable, printable_line
from stepset.run_status import LogLine, RankStatus, RunStatus
from stepset.watch.lines import OpenLine, without_rank_mark
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import HangReported, LinesOmitted, ProgressAgain, Record, Restarted
from stepset.watch.present.sources import prefix, shown_text

TABLE_EVERY = 0.5
"""The number of seconds between two updates of the table."""
LINES = 5000
"""The maximum number of lines of a run that a cell shows. The number is limited, because the notebook file stores all
shown lines."""
Wait = Callable[[float | None, Callable[[RunStatus], None]], RunStatus]
_POLL = 0.1
"""The number of seconds between two outputs of a cell. The lines between two outputs form one message to the browser,
or a few messages if the lines are long. If a cell sends too many messages, the kernel loses some of them, possibly the
last table and the value of the cell."""
_QUEUED = 10_000
_LINE = 2000
"""The maximum number of characters of a line that a cell shows."""
PART = 256 * 1024
"""The number of bytes of lines after which a message to the browser ends."""
_RATE = 900_000
"""The maximum number of bytes of lines per second. Jupyter Server drops the messages of a cell that sends more than
1,000,000 bytes per second (iopub_data_rate_limit)."""


class NotebookDisplay:
    """A listener of one run, with a loop that shows what the listener has received."""

    def __init__(self) -> None:
        self._lines: queue.Queue[LogLine] = queue.Queue(_QUEUED)
        self._newest: dict[str, str] = {}  # source -> its newest line, which may be incomplete
        self._presenter = Presenter(logs=lambda status: logs_call(status, of_failed_rank=False))
        self._status: RunStatus | None = None
        self._shown: RunStatus | None = None
        self._over = threading.Event()
        self._count = 0
        self._table: Any = None  # the DisplayHandle of this cell's table
        self._due = 0.0

    def on_line(self, line: LogLine) -> None:
        """Stores a line. Waits while the queue is full."""
        self._keep(line)
        while not self._over.is_set():
            try:
                self._lines.put(line, timeout=_POLL)
                return
            except queue.Full:
                continue

    def on_open_line(self, line: OpenLine) -> None:
        """Stores what an incomplete line, such as a progress bar, currently shows. Only the table shows this text."""
        self._keep(line)

    def _keep(self, line: LogLine | OpenLine) -> None:
        self._newest[line.source] = line.text[:_LINE]

    def on_status(self, status: RunStatus) -> None:
        """Stores the current status of the run."""
        if self._status is not None and status.attempt != self._status.attempt:
            self._newest.clear()
        self._status = status

    def show_until_over(self, handle: RunHandle) -> RunStatus:
        """Shows the run until the run has finished. Returns the final status."""
        waiter = _Waiter(handle)
        waiter.start()
        try:
            while waiter.is_alive():
                waiter.join(_POLL)
                self._show_new()
            final = waiter.final()
            self._status, self._due = final, 0.0
            self._show_new()
            _show_once(final)
            return final
        finally:
            self._over.set()

    def show_while_waiting(self, wait: Wait, timeout: float | None) -> RunStatus:
        """Shows the table of a run until the run has finished, or until `timeout` seconds have passed.

        Args:
            wait: the method `Backend.wait` for this run, without the name of the run.
            timeout: the maximum number of seconds to wait, or None for no limit.

        Returns:
            The last status. If the run was already over, the cell shows no table.
        """

        def show(status: RunStatus) -> None:
            self._status = status
            self._show_new()

        final = wait(timeout, show)
        if not self.shows_table and final.phase.final:
            return final
        self._due = 0.0
        show(final)
        _show_once(final)
        return final

    @property
    def shows_table(self) -> bool:
        """Whether the cell shows the table of the run."""
        return self._table is not None

    def _show_new(self) -> None:
        # Lines that arrive later are shown after an update of the table.
        print_lines(self._shown_lines([self._lines.get() for _ in range(self._lines.qsize())]))
        status, now = self._status, time.monotonic()
        if status is None or now < self._due:
            return
        print_lines(_record_lines(self._presenter.see(status, now)))
        if status is not self._shown or not status.phase.final:
            self._shown, self._due = status, now + TABLE_EVERY
            self._show_table(status)

    def _shown_lines(self, lines: Iterable[LogLine]) -> Iterator[str]:
        """Yields the text of the lines that the cell shows."""
        for line in filter(self._presenter.shows, lines):
            self._count += 1
            if self._count <= LINES:
                yield f"{printable(prefix(line.source))} {printable_line(shown_text(line)[:_LINE])}"
            elif self._count == LINES + 1:
                yield "stepset: the cell shows no further lines; stepset.logs(name) yields all of them"

    def _live_row(self, row: RankStatus) -> RankStatus:
        """Returns the row with the newest line. A listener receives no status when only the lines have changed."""
        text = self._newest.get(row.source)
        return replace(row, last_line=without_rank_mark(row.source, text)) if text else row

    def _show_table(self, status: RunStatus) -> None:
        from IPython.display import display  # the kernel has already loaded IPython

        now = time.time()
        if not status.phase.final:
            status = status.with_(ranks=tuple(map(self._live_row, status.ranks)))
        data = {"text/html": status_html(status, now), "text/plain": status_text(status, now)}
        if self._table is None:
            # The identifier is new. Otherwise, another cell that shows the same run would change this cell.
            self._table = display(data, display_id=True, raw=True)  # type: ignore[no-untyped-call]  # IPython has no types
        else:
            self._table.update(data, raw=True)


def _record_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yields the text of the records that the table does not contain."""
    for record in records:
        if isinstance(record, (Restarted, HangReported, ProgressAgain, LinesOmitted)):
            first, *more = map(printable, record.lines)
            yield f"stepset: {first}"
            yield from more


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines as messages of the kernel. A message contains about PART bytes, or all lines if they are shorter.

    Waits after each message, so that the lines do not exceed the rate limit of Jupyter Server.
    """
    part, size = list[str](), 0
    for line in lines:
        part.append(line)
        size += len(line.encode(errors="replace")) + 1
        if size >= PART:
            _print(part, size)
            part, size = [], 0
    if part:
        _print(part, size)


def _print(lines: Iterable[str], size: int) -> None:
    print("\n".join(lines), flush=True)
    time.sleep(size / _RATE)


def _show_once(status: RunStatus) -> None:
    """Makes IPython show nothing if the value of the current cell is `status`, which the cell already shows."""
    from IPython import get_ipython  # the kernel has already loaded IPython

    shell = get_ipython()
    count = shell.execution_count

    def show(value: RunStatus) -> None:
        if value is not status or shell.execution_count != count:
            raise NotImplementedError  # IPython then shows the value in the usual way

    shell.display_formatter.ipython_display_formatter.for_type(RunStatus, show)


class _Waiter(threading.Thread):
    """Waits until a run has finished."""

    def __init__(self, handle: RunHandle) -> None:
        super().__init__(name=f"stepset wait {handle.name}", daemon=True)
        self._handle = handle
        self._final: RunStatus | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._final = self._handle.wait()
        except BaseException as error:  # noqa: BLE001  # raised again by `final`
            self._error = error

    def final(self) -> RunStatus:
        """Returns the final status, or raises the exception of `RunHandle.wait`."""
        if self._error is not None:
            raise self._error
        assert self._final is not None
        return self._final


def display_of_kernel() -> NotebookDisplay | None:
    """Returns a display if a kernel executes a cell in this thread. Returns None in plain programs and terminals.

    A kernel has loaded IPython before it executes a cell, so this function does not import IPython.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None or threading.current_thread() is not threading.main_thread():
        return None
    return NotebookDisplay()
