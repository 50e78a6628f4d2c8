"""Writes a run's events and output to the log of its step, and records its history for the report."""

from __future__ import annotations

import sys
import time

from stepset.printable import printable, printable_line
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import OpenLine
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import FirstFailure, ProgressReported, RanksStarted, Record, RunEnded
from stepset.watch.present.sources import is_shown, prefix, shown_text
from stepset_kfp.outputs.history import Point, ReportHistory


class StepLog:
    """A run's listener that writes to the step's log.

    `ranks` are the ranks whose lines are logged; None: all. Lines without a rank are logged unless `ranks` is empty.
    """

    def __init__(self, ranks: frozenset[int] | None = None) -> None:
        self.history = ReportHistory()
        self._ranks = ranks
        self._presenter = Presenter()

    def on_line(self, line: LogLine) -> None:
        if is_shown(line.source, self._ranks) and self._presenter.shows(line):
            _write_line(line)

    def on_open_line(self, line: OpenLine) -> None:
        if is_shown(line.source, self._ranks) and self._presenter.shows_open(line, time.monotonic()):
            _write_line(line)

    def on_status(self, status: RunStatus) -> None:
        points, now = self.history.points, time.time()
        if status.progress is not None and (not points or points[-1].progress != status.progress):
            self.history.add(Point(now, status.progress))
        for record in self._presenter.see(status, time.monotonic()):
            if not isinstance(record, (ProgressReported, RanksStarted, FirstFailure)):
                self.history.events.append((now, record))
            if not _repeats_failure(record):
                log_lines(f"stepset: {record.text}")


def _repeats_failure(record: Record) -> bool:
    """Returns whether the step's failure message repeats a record (`stepset_kfp.step.train.fail`)."""
    return isinstance(record, RunEnded | FirstFailure) and record.level == "warning"


def log_lines(*lines: str) -> None:
    """Writes stepset's own lines to the step's log at once."""
    _write(*map(printable, lines))


def _write_line(line: LogLine | OpenLine) -> None:
    _write(f"{prefix(line.source)} {printable_line(shown_text(line))}")


def _write(*lines: str) -> None:
    """Writes printable lines; characters that the log's encoding lacks are escaped."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
