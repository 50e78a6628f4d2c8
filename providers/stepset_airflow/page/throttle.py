"""Limits how often the document of a page is written, because each write updates Airflow's database."""

from __future__ import annotations

from dataclasses import dataclass

AT_LEAST = 1.0
"""Minimum seconds between two writes. The final state of a run is written immediately."""
QUIET_LEAST, QUIET_MOST = 2.0, 15.0
"""Minimum seconds between two writes if only the progress or the last lines of ranks have changed.

For a new run, the minimum is QUIET_LEAST, because a user may be watching the run. The minimum grows with the age of the
run up to QUIET_MOST.
"""
BUDGET = 4.0
"""Maximum number of writes per second of a process. A process may follow several runs."""

_QUIET_SHARE = 1 / 60


@dataclass(frozen=True)
class WriteThrottle:
    """Computes the interval between two writes of a document. `runs` is the number of runs that the process follows."""

    runs: int = 1

    def wait(self, age: float, urgent: bool) -> float:
        """Returns the minimum number of seconds between two writes.

        Args:
            age: the number of seconds since the run was created.
            urgent: False if only the progress or the last lines of ranks have changed. True after any other change,
                such as a change of a rank's state.

        >>> at_once = WriteThrottle()
        >>> at_once.wait(10, urgent=False), at_once.wait(600, urgent=False), at_once.wait(600, urgent=True)
        (2.0, 10.0, 1.0)
        >>> WriteThrottle(runs=400).wait(600, urgent=False)
        100.0
        """
        least = AT_LEAST if urgent else min(QUIET_MOST, max(QUIET_LEAST, age * _QUIET_SHARE))
        return max(least, self.runs / BUDGET)
