"""Raises the error of a run that failed. A cell that has shown the status of the run does not show it again."""

from __future__ import annotations

from stepset.errors import TrainingFailedError
from stepset.html.calls import diagnose_call
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import failure_rows, row_lines
from stepset.watch.present.sentences import end_sentence, with_advice

__tracebackhide__ = True
"""Makes pytest omit the frames of this module, so that a failed test shows the line of the test."""


def succeeded(found: RunStatus, *, shown: bool = False) -> RunStatus:
    """Returns the status of a run that succeeded. Raises TrainingFailedError if the run did not succeed.

    The error contains advice and has notes about the failure, unless `shown` states that a cell has shown the status.
    """
    if found.phase is Phase.SUCCEEDED:
        return found
    failure = found.failure
    advice = "" if failure is None or shown else failure.advice
    error = TrainingFailedError(with_advice(end_sentence(found), advice), found)
    if not shown:
        rows = [] if failure is None else [row for row in failure_rows(failure) if row[0] in ("frame", "last lines")]
        output = [line for title, values in rows for line in row_lines(title, values)]
        error.add_note("\n".join([*output, *row_lines("diagnosis", [diagnose_call(found)])]))
    raise error
