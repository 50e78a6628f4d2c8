"""Renders the status of a run as plain text, which `print` and IPython show. Contains only pure functions."""

from __future__ import annotations

import stepset.html.status  # noqa: F401  # registers the HTML, so one import registers both
from stepset.html.calls import logs_call, resume_call
from stepset.run_status import RunStatus, as_text
from stepset.watch.present.outcome import outcome_lines


@as_text.register(RunStatus)
def status_text(status: RunStatus, now: float) -> str:
    """Returns a text about the result of a run. If the run failed, the text states why.

    If the run has not finished, the text describes the current state of the run. `now` is in seconds since the epoch.
    """
    took = (status.finished or now) - status.created
    return "\n".join(outcome_lines(status, took, logs=logs_call(status), resume=resume_call(status)))
