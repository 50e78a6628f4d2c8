"""Writes a run into the log of its step, and records what the report shows."""

from __future__ import annotations

import sys
import time

from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import FirstFailure, ProgressReported, RanksStarted, Record, RunEnded
from stepset.watch.present.sources import is_shown, prefix
from stepset.watch.state import LogLine, RunStatus
from stepset_kfp.outputs.history import History, Point


class StepLog:
    """A run's listener.

    It logs the lines of `ranks`, None: all. Lines of no rank are logged unless `ranks` is empty.
    """

    def __init__(self, ranks: frozenset[int] | None = None) -> None:
        self.history = History()
        self._ranks = ranks
        self._presenter = Presenter()

    def on_line(self, line: LogLine) -> None:
        if is_shown(line.source, self._ranks):
            say(f"{prefix(line.source)} {line.text}")

    def on_status(self, status: RunStatus) -> None:
        points, now = self.history.points, time.time()
        if status.progress is not None and (not points or points[-1].progress != status.progress):
            self.history.add(Point(now, status.progress))
        for record in self._presenter.see(status, time.monotonic()):
            if not isinstance(record, (ProgressReported, RanksStarted, FirstFailure)):
                self.history.events.append((now, record))
            if not _said_by_the_step(record):
                say(f"stepset: {record.text}")


def _said_by_the_step(record: Record) -> bool:
    """Whether a record repeats the message with which the step fails (`stepset_kfp.step.train.fail`)."""
    return isinstance(record, RunEnded | FirstFailure) and record.level == "warning"


def say(*lines: str) -> None:
    """Writes lines to the step's log at once; characters that cannot be encoded are escaped."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
