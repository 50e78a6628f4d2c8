"""The states of a rank, as in `RankStatus.state`, and the final states of the ranks of an attempt."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace

from stepset.run_status import Failure, RankStatus

PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED = "Pending", "Running", "Succeeded", "Failed", "Stopped"

ENDED = "Ended"
"""The process of a local rank has exited. The supervisor has not recorded the result, or the supervisor is stuck."""
LOST = "Lost"
"""The supervisor of a local run has exited. Nothing is known about the process of the rank and its exit code."""


def final_rows(rows: Iterable[RankStatus], failure: Failure | None) -> tuple[RankStatus, ...]:
    """Returns the rows of an attempt that has ended.

    No row is waiting or running. Ranks that were stopped because of `failure` are Stopped and not Failed. Ranks that
    failed with the same error as the first rank are Failed.
    """
    aftermath, same = (set(failure.aftermath), set(failure.same_error)) if failure is not None else (set(), set())
    rows = [replace(row, state=FAILED) if row.source in same else row for row in rows]
    return tuple(replace(row, state=STOPPED) if _was_stopped(row, aftermath) else row for row in rows)


def _was_stopped(row: RankStatus, aftermath: set[str]) -> bool:
    if row.state in (PENDING, RUNNING):
        return True
    codes = (None, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
    stopped = row.signal in (signal.SIGTERM, signal.SIGKILL) or (row.signal is None and row.exit_code in codes)
    return row.state == FAILED and row.source in aftermath and stopped
