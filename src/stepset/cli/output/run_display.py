"""`RunDisplay`, which prints the output of `stepset run` while a run is in progress.

The output consists of the lines of the ranks, and the state of the run. On a terminal, a status line shows the state.
Without a terminal, each change of the state is printed as a line.

The backend's thread passes lines and states to the display. A separate thread of the display writes the lines and
states, at most TICKS_PER_SECOND times per second. One system call writes many lines.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO

from stepset.cli.output.live_rows import clear, live_rows
from stepset.cli.output.outcome import took
from stepset.cli.output.terminal import source_prefix
from stepset.errors import InfrastructureError
from stepset.printable import printable, printable_line
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import OpenLine, without_rank_mark
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import (
    FirstFailure,
    Note,
    PhaseChanged,
    ProgressReported,
    RanksStarted,
    Record,
    Restarted,
    RunEnded,
)
from stepset.watch.present.sentences import (
    LOGS_DELETED,
    all_ended,
    counted,
    duration,
    logs_deleted,
    state_line,
)
from stepset.watch.present.sources import shown_text

TICKS_PER_SECOND = 10
MAX_QUEUED = 1 << 20
"""The maximum number of queued characters. If the queue is full, the ranks wait until the reader reads lines."""
_RECENT = 200
"""The number of lines of a terminal that a user is expected to see without searching."""

_IN_STATUS_LINE = (PhaseChanged, RanksStarted, ProgressReported)
_AT_THE_END = (RunEnded, FirstFailure)
"""The records that the display does not show. The function `stepset.cli.output.outcome.outcome` shows these records
after the run."""


class RunDisplay:
    """A RunListener that prints the lines and the state of one run.

    Args:
        lines: the stream for the lines of the ranks.
        messages: the stream for stepset's own messages.
        lines_terminal: whether `lines` is a terminal.
        messages_terminal: whether `messages` is a terminal.
        colour: whether the sources of the lines are coloured.
        verbose: whether the lines after the first failure are shown.
        flags: the flags that select the run's backend and cluster in another command (`BackendArgs.as_flags`).
        on_write_error: a function that is called after the first write error. The cause may be a closed pipe or a full
            disk, for example. The attribute `error` of the `RunDisplay` then contains the error.
    """

    def __init__(
        self,
        lines: BinaryIO,
        messages: BinaryIO,
        *,
        lines_terminal: bool = False,
        messages_terminal: bool = False,
        colour: bool = False,
        verbose: bool = False,
        flags: str | None = None,
        on_write_error: Callable[[], object] = lambda: None,
    ) -> None:
        self.error: OSError | None = None
        self._lines, self._messages = lines, messages
        self._lines_terminal, self._live, self._colour = lines_terminal, messages_terminal, colour
        self._on_write_error = on_write_error
        self._recent: deque[LogLine | OpenLine] = deque(maxlen=_RECENT if lines_terminal and messages_terminal else 0)
        self._prefixes: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._held = 0
        self._left_out = 0
        self._notices: deque[str] = deque()
        self._status: RunStatus | None = None
        self._presenter = Presenter(verbose=verbose, flags=flags)
        self._presenting = threading.Lock()
        self._open_lines: dict[str, OpenLine] = {}  # the newest incomplete line of each source
        self._drawn, self._drawn_at = "", float("-inf")
        self._patient = True
        self._closing = False
        self._work, self._much, self._room = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_until_closed, name="stepset-display", daemon=True)

    def __enter__(self) -> RunDisplay:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise InfrastructureError(
                f"no thread can be started: {error}; see the limits of processes and memory (ulimit -u, ulimit -v)"
            ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing = True
        self._work.set()
        self._much.set()
        self._thread.join()
        self._live = False
        if self._left_out:
            verb = "is" if self._left_out == 1 else "are"
            gone = self._status is not None and logs_deleted(self._status)
            where = LOGS_DELETED if gone else "see 'stepset logs'"
            self.show_message(f"{counted(self._left_out, 'line')} {verb} not shown; {where}")
        self._write()

    def on_line(self, line: LogLine) -> None:
        self._open_lines.pop(line.source, None)
        if self._presenter.shows(line):
            self._queue(line)

    def on_open_line(self, line: OpenLine) -> None:
        """Shows an incomplete line.

        On a terminal, the incomplete line is updated in place. Without a terminal, new versions of
        the incomplete line are printed as separate lines, at a limited rate.
        """
        if self._live and self._lines_terminal:
            self._open_lines[line.source] = line
            self._work.set()
        elif self._presenter.shows_open(line, time.monotonic()):
            self._queue(line)

    def _queue(self, line: LogLine | OpenLine) -> None:
        """Queues a line. If the queue is full, waits until the reader has read lines."""
        text = shown_text(line)
        text = printable_line(text) if self._lines_terminal else text
        while self._held > MAX_QUEUED and self.error is None:
            if not self._patient:
                self._left_out += 1
                return
            self._room.clear()
            self._much.set()
            self._work.set()
            self._room.wait(1.0)
        self._held += len(text)
        prefix = self._prefixes.get(line.source)
        if prefix is None:
            prefix = self._prefixes[line.source] = source_prefix(line.source, self._colour)
        self._waiting.append(f"{prefix}{text}\n")
        self._recent.append(line)
        self._work.set()
        if self._held > MAX_QUEUED // 2:
            self._much.set()

    def without_shown_lines(self, status: RunStatus) -> RunStatus:
        """Returns the status without the last lines of the first failing rank, if the terminal has just shown them all.

        Without these lines, the report of the failure contains no second copy of a traceback.
        """
        failure = status.failure
        if failure is None or failure.rank is None:
            return status
        source = f"rank {failure.rank}"
        shown = {without_rank_mark(source, line.text) for line in self._recent if line.source == source}
        if not shown.issuperset(failure.tail):
            return status
        error = "" if shown.issuperset(failure.error.splitlines()) else failure.error
        return status.with_(failure=replace(failure, tail=(), error=error))

    def on_status(self, status: RunStatus) -> None:
        with self._presenting:
            if self._status is not None and status.attempt != self._status.attempt:
                self._open_lines.clear()
            self._status = status
            self._present()
        self._work.set()

    def show_message(self, text: str, *more: str) -> None:
        """Shows a message of stepset after the queued lines. `more` are further lines of the message."""
        self._notices.append("".join(f"{printable(line)}\n" for line in (f"stepset: {text}", *more)))
        self._work.set()

    def drop_lines_when_full(self) -> None:
        """From now on, this object drops lines if the queue is full, and does not wait for the reader.

        Then a slow reader cannot delay the termination of the run.
        """
        self._patient = False
        self._room.set()

    def _present(self) -> None:
        """Shows what has changed in the status since the last call. Both threads call this method."""
        if self._status is not None:
            for record in self._presenter.see(self._status, time.monotonic()):
                self._show(record)

    def _show(self, record: Record) -> None:
        if isinstance(record, _AT_THE_END) or (self._live and isinstance(record, _IN_STATUS_LINE)):
            return
        mark = "note: " if isinstance(record, Note | Restarted) else ""
        first, *more = record.lines
        self.show_message(f"{mark}{first}", *more)

    def _write_until_closed(self) -> None:
        while not self._closing:
            # Write at least once per second, to update the duration in the status line.
            self._work.wait(1.0)
            self._work.clear()
            self._much.clear()
            self._write()
            self._much.wait(1 / TICKS_PER_SECOND)

    def _write(self) -> None:
        """Writes the queued lines, then the status line."""
        if not self._closing:
            with self._presenting:
                self._present()  # shows changes that the rate limit has delayed
        lines, notices = "".join(_taken(self._waiting)), "".join(_taken(self._notices))
        if self.error is None:
            try:
                self._put(lines.encode(errors="replace"), notices)
            except OSError as error:
                self.error = error
                self._on_write_error()
        self._held = 0
        self._room.set()

    def _put(self, lines: bytes, notices: str) -> None:
        # Other threads may change the incomplete lines at the same time.
        rows = live_rows(self._open_lines.copy(), self._status_line(), colour=self._colour) if self._live else ""
        if self._drawn and (lines or notices or rows != self._drawn):
            self._messages.write(clear(self._drawn).encode())
            self._messages.flush()
            self._drawn = ""
        if lines:
            self._lines.write(lines)
            self._lines.flush()
        if rows and not self._drawn:
            if time.monotonic() - self._drawn_at < 1 / TICKS_PER_SECOND:
                self._work.set()  # draw the rows in the next iteration
            else:
                notices += rows
                self._drawn, self._drawn_at = rows, time.monotonic()
        if notices:
            self._messages.write(notices.encode(errors="replace"))
            self._messages.flush()

    def _status_line(self) -> str:
        """Returns the status line; an empty string after all ranks have finished."""
        status = self._status
        if status is None or status.phase.final or all_ended(status):
            return ""
        return f"{status.name}  {state_line(status)}  {duration(int(took(status)))}"


def _taken(queue: deque[str]) -> list[str]:
    """Removes and returns the current items of a queue. Other threads may append items at the same time."""
    return [queue.popleft() for _ in range(len(queue))]
