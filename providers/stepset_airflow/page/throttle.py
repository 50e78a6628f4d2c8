"""Decides when a page's document is written again: each write updates Airflow's database. Pure."""

from __future__ import annotations

from dataclasses import dataclass

AT_LEAST = 1.0
"""Minimum seconds between two writes; the final state is written at once."""
QUIET_LEAST, QUIET_MOST = 2.0, 15.0
"""The same if only progress and lines changed: less for a run that has just started, which a user may be watching."""
BUDGET = 4.0
"""Maximum writes in a second for all runs that one process follows."""

_QUIET_SHARE = 1 / 60


@dataclass(frozen=True)
class WriteThrottle:
    """The write rate of a document in a process that follows `followed` runs."""

    followed: int = 1

    def wait(self, age: float, urgent: bool) -> float:
        """Returns the seconds between two writes; `urgent`: the run's phase or a rank's state has changed.

        >>> at_once = WriteThrottle()
        >>> at_once.wait(10, urgent=False), at_once.wait(600, urgent=False), at_once.wait(600, urgent=True)
        (2.0, 10.0, 1.0)
        >>> WriteThrottle(followed=400).wait(600, urgent=False)
        100.0
        """
        least = AT_LEAST if urgent else min(QUIET_MOST, max(QUIET_LEAST, age * _QUIET_SHARE))
        return max(least, self.followed / BUDGET)
