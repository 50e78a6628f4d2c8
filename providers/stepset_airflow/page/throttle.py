"""When a page's document is written again: each is one row of Airflow's database, and may have no reader. Pure."""

from __future__ import annotations

from dataclasses import dataclass

AT_LEAST = 1.0
"""Minimum seconds between two writings; the final state is written at once."""
QUIET_LEAST, QUIET_MOST = 2.0, 15.0
"""The same if only progress and lines changed: shorter for a run that has just begun, which a user may be watching."""
BUDGET = 4.0
"""Writings in a second by all runs that one process follows."""

_QUIET_SHARE = 1 / 60


@dataclass(frozen=True)
class WriteThrottle:
    """How often a document is written by a process that follows so many runs."""

    followed: int = 1

    def wait(self, age: float, urgent: bool) -> float:
        """Seconds from one writing to the next; urgent if the run's phase, or a rank's state, has changed.

        >>> at_once = WriteThrottle()
        >>> at_once.wait(10, urgent=False), at_once.wait(600, urgent=False), at_once.wait(600, urgent=True)
        (2.0, 10.0, 1.0)
        >>> WriteThrottle(followed=400).wait(600, urgent=False)
        100.0
        """
        least = AT_LEAST if urgent else min(QUIET_MOST, max(QUIET_LEAST, age * _QUIET_SHARE))
        return max(least, self.followed / BUDGET)
