"""Creates the cells of a table of runs for all interfaces. Contains only pure functions."""

from __future__ import annotations

from stepset.run_status import Progress, RunStatus
from stepset.watch.present.sentences import duration, percent, progress_words, ranks_words


def run_cells(run: RunStatus, now: float) -> dict[str, str]:
    """Returns the cells of a run's row in a table of runs. The keys are the titles of the columns.

    `now` is in seconds since the epoch. If a problem prevents the start of the run, the reason contains the kind of the
    problem.

    >>> run_cells(RunStatus("digits-1", "digits", "local", created=40.0, program="train.py"), 100.0)["AGE"]
    '1m00s'
    >>> from stepset.run_status import Failure, FailureKind
    >>> trouble = Failure(FailureKind.REJECTED, "the ServiceAccount does not exist", "")
    >>> run_cells(RunStatus("digits-1", "digits", "kubernetes", reason="Starting", trouble=trouble), 0.0)["REASON"]
    'Starting, Rejected'
    """
    problem = run.trouble.kind.value if run.trouble is not None and run.reason == "Starting" else ""
    took = (run.finished or now) - run.created
    return {
        "NAME": run.name,
        "PHASE": run.phase.value,
        "REASON": ", ".join(filter(None, (run.reason, problem, "expired" if run.expired(now) else ""))),
        "RANKS": ranks_words(run).partition(" ")[0],  # without "ranks running", because another column has the phase
        "PROGRESS": _short(run.progress),
        "AGE": duration(int(now - run.created)) if run.created else "",
        "DURATION": duration(took) if run.created else "",
        "PROGRAM": run.program,
    }


def _short(progress: Progress | None) -> str:
    if progress is None:
        return ""
    if progress.progress is not None:
        return percent(progress.progress)
    return progress_words(Progress(progress.step))
