"""Limits how often a page's document is written, because each write updates Airflow's database. Pure."""

from __future__ import annotations

from dataclasses import dataclass

AT_LEAST = 1.0
"""Minimum seconds between two writes; the final state is written at once."""
QUIET_LEAST, QUIET_MOST = 2.0, 15.0
"""Minimum seconds between two writes if only progress and lines changed: QUIET_LEAST for a new run, which a user may be
watching; it grows with the run's age to QUIET_MOST."""
BUDGET = 4.0
"""Maximum writes per second for all runs that one process follows."""

_QUIET_SHARE = 1 / 60


@dataclass(frozen=True)
class WriteThrottle:
    """The interval between two writes of a document in a process that follows `runs` runs."""

    runs: int = 1

    def wait(self, age: float, urgent: bool) -> float:
        """Returns the seconds between two writes; `urgent`: the run's phase or a rank's state has changed.

        >>> at_once = WriteThrottle()
        >>> at_once.wait(10, urgent=False), at_once.wait(600, urgent=False), at_once.wait(600, urgent=True)
        (2.0, 10.0, 1.0)
        >>> WriteThrottle(runs=400).wait(600, urgent=False)
        100.0
        """
        least = AT_LEAST if urgent else min(QUIET_MOST, max(QUIET_LEAST, age * _QUIET_SHARE))
        return max(least, self.runs / BUDGET)
