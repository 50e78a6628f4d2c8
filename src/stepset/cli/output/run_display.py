"""The output of `stepset run` during a run: the ranks' lines, and the run's state as lines or as a live status line.

The backend's thread passes lines and states; the display's own thread writes them at most TICKS_PER_SECOND times a
second, so that stepset does not make a system call for each line, and a terminal can keep up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from stepset.cli.output.live_rows import LiveRows, clear
from stepset.cli.output.outcome import took
from stepset.cli.output.terminal import source_prefix
from stepset.errors import InfrastructureError
from stepset.printable import printable, printable_line
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import OpenLine
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
from stepset.watch.present.sentences import all_ended, counted, duration, state_line
from stepset.watch.present.sources import shown_text

TICKS_PER_SECOND = 10
MAX_QUEUED = 1 << 20
"""Maximum number of queued characters; above it, the run waits for the reader, as with any pipe."""

_IN_STATUS_LINE = (PhaseChanged, RanksStarted, ProgressReported)
_AT_THE_END = (RunEnded, FirstFailure)
"""The records that `stepset.cli.output.outcome.outcome` shows after the display is closed."""


class RunDisplay:
    """Shows one run; a RunListener.

    Args:
        lines: the stream for the ranks' lines.
        messages: the stream for stepset's own messages.
        lines_terminal, messages_terminal: whether these are terminals.
        verbose: whether lines after the first failure are shown.
        on_write_error: called once when writing fails (a closed pipe, a full disk); see `error`.
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
        on_write_error: Callable[[], object] = lambda: None,
    ) -> None:
        self.error: OSError | None = None
        self._lines, self._messages = lines, messages
        self._lines_terminal, self._live, self._colour = lines_terminal, messages_terminal, colour
        self._on_write_error = on_write_error
        self._prefixes: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._held = 0
        self._left_out = 0
        self._notices: deque[str] = deque()
        self._status: RunStatus | None = None
        self._presenter, self._presenting = Presenter(verbose=verbose), threading.Lock()
        self._rows = LiveRows(colour)
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
            self.show_message(f"{counted(self._left_out, 'line')} {verb} not shown; see 'stepset logs'")
        self._write()

    def on_line(self, line: LogLine) -> None:
        self._rows.complete(line.source)
        if self._presenter.shows(line):
            self._queue(line)

    def on_open_line(self, line: OpenLine) -> None:
        """Shows the state of an incomplete line in place on a terminal, else at a limited rate as a line."""
        if self._live and self._lines_terminal:
            self._rows.update(line)
            self._work.set()
        elif self._presenter.shows_open(line, time.monotonic()):
            self._queue(line)

    def _queue(self, line: LogLine | OpenLine) -> None:
        """Queues a line; waits while the reader is too slow."""
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
        self._work.set()
        if self._held > MAX_QUEUED // 2:
            self._much.set()

    def on_status(self, status: RunStatus) -> None:
        with self._presenting:
            if self._status is not None and status.attempt != self._status.attempt:
                self._rows.clear()
            self._status = status
            self._present()
        self._work.set()

    def show_message(self, text: str) -> None:
        """Shows a message of stepset's own, after the earlier lines."""
        self._notices.append(f"stepset: {printable(text)}\n")
        self._work.set()

    def drop_lines_when_full(self) -> None:
        """Drops lines from now on instead of waiting, so that a slow reader cannot delay the end."""
        self._patient = False
        self._room.set()

    def _present(self) -> None:
        """Shows what has changed in the status. Both threads call this method, always with the newest status."""
        if self._status is not None:
            for record in self._presenter.see(self._status, time.monotonic()):
                self._show(record)

    def _show(self, record: Record) -> None:
        if isinstance(record, _AT_THE_END) or (self._live and isinstance(record, _IN_STATUS_LINE)):
            return
        mark = "note: " if isinstance(record, Note | Restarted) else ""
        self.show_message(f"{mark}{record.text}")

    def _write_until_closed(self) -> None:
        while not self._closing:
            # At least once a second, to update the clock in the status line.
            self._work.wait(1.0)
            self._work.clear()
            self._much.clear()
            self._write()
            self._much.wait(1 / TICKS_PER_SECOND)

    def _write(self) -> None:
        """Writes the queued lines, then the status line."""
        if not self._closing:
            with self._presenting:
                self._present()  # records that were delayed by the rate limit
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
        status_line = self._rows.text(self._status_line()) if self._live else ""
        if self._drawn and (lines or notices or status_line != self._drawn):
            self._messages.write(clear(self._drawn).encode())
            self._messages.flush()
            self._drawn = ""
        if lines:
            self._lines.write(lines)
            self._lines.flush()
        if status_line and not self._drawn:
            if time.monotonic() - self._drawn_at < 1 / TICKS_PER_SECOND:
                self._work.set()  # in the next turn
            else:
                notices += status_line
                self._drawn, self._drawn_at = status_line, time.monotonic()
        if notices:
            self._messages.write(notices.encode(errors="replace"))
            self._messages.flush()

    def _status_line(self) -> str:
        """The line about the run's state; empty once all ranks have ended."""
        status = self._status
        if status is None or status.phase.final or all_ended(status):
            return ""
        return f"{status.name}  {state_line(status)}  {duration(int(took(status)))}"


def _taken(queue: deque[str]) -> list[str]:
    """Removes and returns what is in the queue; other threads may append meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]
