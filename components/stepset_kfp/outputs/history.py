"""What a run's report shows of its course."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepset.watch.present.records import Record
from stepset.watch.state import Progress


@dataclass(frozen=True)
class Point:
    """The training's progress at one moment, in seconds since the epoch."""

    at: float
    progress: Progress


@dataclass
class History:
    """What happened in a run, in its order; `points` are the training's reports, evenly fewer if there are very many.

    `events` are pairs of seconds since the epoch and the record that was presented then; none of progress.
    """

    events: list[tuple[float, Record]] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    LIMIT = 2000

    def add(self, point: Point) -> None:
        self.points.append(point)
        if len(self.points) > self.LIMIT:
            del self.points[1:-1:2]
