"""Writes a run into the log of its step, and remembers what the report shows. Made by step.py for each run.

The backend calls it from the thread that follows the run.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import FirstFailure, ProgressReported, RanksStarted, Record, RunEnded
from stepset.watch.present.sources import is_shown, prefix
from stepset.watch.state import LogLine, Progress, RunStatus


@dataclass(frozen=True)
class Point:
    """The training's own report at one moment.

    Args:
        at: seconds since the epoch.
        progress: what it said.
    """

    at: float
    progress: Progress


@dataclass
class History:
    """What happened in a run, in its order.

    Args:
        events: when a record was presented, as seconds since the epoch, and the record; none of progress.
        points: the training's reports; of very many, evenly fewer.
    """

    events: list[tuple[float, Record]] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    LIMIT = 2000

    def add(self, point: Point) -> None:
        """Takes another report in."""
        self.points.append(point)
        if len(self.points) > self.LIMIT:
            del self.points[1:-1:2]


class StepLog:
    """A run's listener.

    Args:
        ranks: ranks whose lines are written; None: all. Lines of no rank are written unless it is empty.
    """

    def __init__(self, ranks: frozenset[int] | None = None) -> None:
        self.history = History()
        self._ranks = ranks
        self._presenter = Presenter()

    def on_line(self, line: LogLine) -> None:
        """A line was printed."""
        if is_shown(line.source, self._ranks):
            say(f"{prefix(line.source)} {line.text}")

    def on_status(self, status: RunStatus) -> None:
        """Something about the run changed."""
        points, now = self.history.points, time.time()
        if status.progress is not None and (not points or points[-1].progress != status.progress):
            self.history.add(Point(now, status.progress))
        for record in self._presenter.see(status, time.monotonic()):
            if not isinstance(record, (ProgressReported, RanksStarted, FirstFailure)):
                self.history.events.append((now, record))
            if not _said_by_the_step(record):
                say(f"stepset: {record.text}")


def _said_by_the_step(record: Record) -> bool:
    """Whether a record is what the step says last, when it fails (`stepset_kfp.step.fail`)."""
    return isinstance(record, RunEnded | FirstFailure) and record.level == "warning"


def say(*lines: str) -> None:
    """Writes lines to the step's log, whole and at once; what cannot be written, half a character, as its number."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
