"""The events and progress of a run that its report shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepset.run_status import Progress
from stepset.watch.present.records import Record


@dataclass(frozen=True)
class Point:
    """The training's progress at one moment, in seconds since the epoch."""

    at: float
    progress: Progress


@dataclass
class ReportHistory:
    """Events and progress of a run, in the order of their times.

    `events` are pairs of seconds since the epoch and the record that was presented then, without progress records.
    `points` has at most LIMIT entries: above that, every second one is dropped.
    """

    events: list[tuple[float, Record]] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    LIMIT = 2000

    def add(self, point: Point) -> None:
        self.points.append(point)
        if len(self.points) > self.LIMIT:
            del self.points[1:-1:2]
