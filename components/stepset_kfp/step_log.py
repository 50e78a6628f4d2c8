"""Writes a run into the log of its step, and remembers what the report shows. Made by step.py for each run.

The backend calls it from the thread that follows the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from stepset.errors import BadInputError
from stepset.watch.state import LogLine, Progress, RunStatus

PROGRESS_EVERY = 1.0
"""Seconds between two progress lines; the last one is always written."""


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
        phases: when each phase began, as seconds since the epoch, and its name with its reason.
        points: the training's reports; of very many, evenly fewer.
    """

    phases: list[tuple[float, str]] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    LIMIT = 2000

    def add(self, point: Point) -> None:
        """Takes another report in."""
        self.points.append(point)
        if len(self.points) > self.LIMIT:
            del self.points[1:-1:2]


def ranks_to_log(log_ranks: str) -> frozenset[int] | None:
    """The ranks whose lines are wanted; None for all, none for `failed`.

    Raises:
        BadInputError: it is neither `all`, `failed` nor ranks separated by commas.

    >>> ranks_to_log("all"), sorted(ranks_to_log("0, 3")), ranks_to_log("failed")
    (None, [0, 3], frozenset())
    """
    if log_ranks == "all":
        return None
    if log_ranks == "failed":
        return frozenset()
    words = [word.strip() for word in log_ranks.split(",")]
    if not all(word.isdecimal() for word in words):
        raise BadInputError(f"log_ranks: {log_ranks!r} is not known; use all, failed, or ranks such as 0,1")
    return frozenset(map(int, words))


class StepLog:
    """A run's listener.

    Args:
        ranks: ranks whose lines are written; None: all. Lines of no rank are written unless it is empty.
    """

    def __init__(self, ranks: frozenset[int] | None = None) -> None:
        self.history = History()
        self._ranks = ranks
        self._told: set[str] = set()
        self._progress: Progress | None = None
        self._progress_at = float("-inf")

    def on_line(self, line: LogLine) -> None:
        """A line was printed."""
        if self._wanted(line.source):
            say(f"[{line.source}] {line.text}")

    def on_status(self, status: RunStatus) -> None:
        """Something about the run changed."""
        phase = f"{status.phase.value} ({status.reason})" if status.reason else status.phase.value
        if not self.history.phases or self.history.phases[-1][1] != phase:
            self.history.phases.append((time.time(), phase))
            again = f", restart {status.attempt}" if status.attempt else ""
            size = f", {status.world_size} ranks" if status.world_size else ""
            say(f"stepset: run {status.name}: {phase}{size}{again}")
        trouble = [f"{status.trouble.message} {status.trouble.advice}"] if status.trouble else []
        for note in (*status.notes, *trouble):
            if note not in self._told:
                self._told.add(note)
                say(f"stepset: {note}")
        self._show_progress(status)

    def _wanted(self, source: str) -> bool:
        if self._ranks is None:
            return True
        word, _, number = source.partition(" ")
        return int(number) in self._ranks if word == "rank" and number.isdigit() else bool(self._ranks)

    def _show_progress(self, status: RunStatus) -> None:
        if status.progress is None:
            return
        if not self.history.points or self.history.points[-1].progress != status.progress:
            self.history.add(Point(time.time(), status.progress))
        now = time.monotonic()
        due = status.phase.final or now - self._progress_at >= PROGRESS_EVERY
        if due and status.progress != self._progress:
            self._progress, self._progress_at = status.progress, now
            say(f"stepset: {progress_text(status.progress)}")


def say(*lines: str) -> None:
    """Writes lines to the step's log, whole and at once; what cannot be written, half a character, as its number."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def progress_text(progress: Progress) -> str:
    """One line, such as `progress: 40 %, step 12, loss=0.31`.

    >>> progress_text(Progress(12, 0.4, {"loss": 0.31}))
    'progress: 40 %, step 12, loss=0.31'
    """
    parts: Iterable[str] = (
        f"{100 * progress.progress:.0f} %" if progress.progress is not None else "",
        f"step {progress.step}" if progress.step is not None else "",
        *(f"{name}={value:.4g}" for name, value in progress.metrics.items()),
    )
    return "progress: " + ", ".join(part for part in parts if part)
