"""Finds the running rank, or the running pod without ranks, in which `stepset exec` starts a command.

Contains only pure functions.
"""

from __future__ import annotations

from stepset.errors import BadInputError
from stepset.run_status import RankStatus, RunStatus

_RUNNING = "Running"


def running_row(status: RunStatus, source: str) -> RankStatus:
    """Returns the row of a source such as `rank 2`.

    Raises:
        BadInputError: the run has no such source, or the source is not running.
    """
    row = next((row for row in status.ranks if row.source == source), None)
    if status.phase.final:
        raise BadInputError(f"run {status.name} is over: {status.phase.value}; a command needs a rank that is running")
    if row is None:
        known = ", ".join(row.source for row in status.ranks[:8]) or "none yet"
        raise BadInputError(f"run {status.name} has no {source}; it has: {known}")
    if row.state != _RUNNING:
        raise BadInputError(f"{source} of run {status.name} is not running: {row.state}")
    return row
