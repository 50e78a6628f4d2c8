"""Stores the events and the progress of a run for the run's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stepset.run_status import ProgressPoint
from stepset.watch.present.records import Record


@dataclass
class ReportHistory:
    """The events and the progress of a run, in the order of their times.

    `events` is a list of pairs. Each pair contains the time of an event, in seconds since the epoch, and the record of
    the event. `events` does not contain progress records. `points` are the points of the last status that has points.

    If there are more than EVENTS events, the first FIRST_EVENTS events and the latest events are kept. `omitted` is the
    number of events that were removed.
    """

    events: list[tuple[float, Record]] = field(default_factory=list)
    points: Sequence[ProgressPoint] = ()
    omitted: int = 0

    EVENTS = 500
    FIRST_EVENTS = 100

    def record(self, at: float, record: Record) -> None:
        """Adds an event.

        Args:
            at: the time of the event, in seconds since the epoch.
        """
        self.events.append((at, record))
        if len(self.events) > self.EVENTS:
            del self.events[self.FIRST_EVENTS]
            self.omitted += 1
