"""Creates the lines about the outcome of a run. Commands about runs print these lines last."""

from __future__ import annotations

import time

from stepset.cli.output.terminal import painted
from stepset.run_status import Phase, RunStatus
from stepset.watch.present.failure_report import rank_to_read
from stepset.watch.present.outcome import outcome_lines
from stepset.watch.present.sentences import command_for

_RED, _GREEN, _BOLD = "1;31", "1;32", "1"


def took(status: RunStatus) -> float:
    """Returns the duration of a run in seconds. If the run is not finished, returns the seconds since its creation."""
    return (status.finished or time.time()) - status.created


def outcome(status: RunStatus, colour: bool = False, flags: str = "", resume: str = "") -> str:
    """Returns lines with the outcome of a run. For a failed run, the lines contain the cause of the failure.

    If the run is not finished, the lines contain the phase of the run.

    Args:
        colour: whether the lines are coloured.
        flags: the flags that select the run's backend and cluster (`BackendArgs.as_flags`).
        resume: the command to continue the run (`resume_command`); empty if the run cannot be continued.
    """
    ink = _GREEN if status.phase is Phase.SUCCEEDED else _RED
    ranks = "" if (rank := rank_to_read(status)) is None else f" --ranks {rank}"
    lines = outcome_lines(
        status,
        took(status),
        logs=f"{command_for('logs', status, flags)}{ranks}",
        flags=flags,
        resume=resume,
        title=lambda text: painted(text, _BOLD, colour),
        verb=lambda text: painted(text, ink, colour),
    )
    return "\n".join([f"stepset: {lines[0]}", *lines[1:]])
