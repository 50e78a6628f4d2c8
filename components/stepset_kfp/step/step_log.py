"""Writes the events and the output of a run to the log of the step, and collects the data for the report."""

from __future__ import annotations

import sys
import time

from stepset.printable import printable, printable_line
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import OpenLine
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import FirstFailure, ProgressReported, RanksStarted, Record, RunEnded
from stepset.watch.present.sources import is_shown, prefix, shown_text
from stepset_kfp.outputs.history import ReportHistory


class StepLog:
    """A `RunListener` that writes to the log of the step.

    Attributes:
        ranks: the ranks whose lines are logged. If None, the lines of all ranks are logged. Lines that belong to no
            rank are logged unless `ranks` is empty.
    """

    def __init__(self, ranks: frozenset[int] | None = None) -> None:
        self.history = ReportHistory()
        self.ranks = ranks
        self._presenter = Presenter()

    def on_line(self, line: LogLine) -> None:
        if is_shown(line.source, self.ranks) and self._presenter.shows(line):
            _write_line(line)

    def on_open_line(self, line: OpenLine) -> None:
        if is_shown(line.source, self.ranks) and self._presenter.shows_open(line, time.monotonic()):
            _write_line(line)

    def on_status(self, status: RunStatus) -> None:
        self.history.points = status.points or self.history.points
        for record in self._presenter.see(status, time.monotonic()):
            if not isinstance(record, (ProgressReported, RanksStarted, FirstFailure)):
                self.history.record(time.time(), record)
            if not _repeats_failure(record):
                log_lines(*(f"stepset: {line}" for line in record.lines))


def _repeats_failure(record: Record) -> bool:
    """Returns whether the failure message of the step (`stepset_kfp.step.train.fail`) contains the text of a record."""
    return isinstance(record, RunEnded | FirstFailure) and record.level == "warning"


def log_lines(*lines: str) -> None:
    """Writes messages of stepset to the log of the step, and flushes the output."""
    _write(*map(printable, lines))


def _write_line(line: LogLine | OpenLine) -> None:
    _write(f"{prefix(line.source)} {printable_line(shown_text(line))}")


def _write(*lines: str) -> None:
    """Writes printable lines. Characters that the encoding of the log cannot represent are escaped."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
