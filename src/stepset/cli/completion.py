"""Shell completion for the names of runs and jobs, and for the values of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from stepset.errors import StepsetError

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


def run_names(incomplete: str) -> list[str]:
    """Returns the names of local runs that start with `incomplete`. The newest run comes first.

    If the runs cannot be listed, returns an empty list.
    """
    return [run.name for run in _runs() if run.name.startswith(incomplete)]


def run_or_job_names(incomplete: str) -> list[str]:
    """Returns the names of local runs and of their jobs that start with `incomplete`. The newest run comes first."""
    runs = _runs()
    names = [*(run.name for run in runs), *(run.job for run in runs)]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def resumed_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names for the argument of `run --resume`. Without `--resume`, the shell completes names of files."""
    return run_or_job_names(incomplete) if ctx.params.get("resume") else []


def job_names(incomplete: str) -> list[str]:
    """Returns the names of the jobs of local runs that start with `incomplete`."""
    return [job for job in dict.fromkeys(run.job for run in _runs()) if job.startswith(incomplete)]


def frameworks(incomplete: str) -> list[str]:
    """Returns the frameworks that start with `incomplete`."""
    from stepset.spec.options import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """Returns the kinds of workload that start with `incomplete`."""
    from stepset.targets.workload_kinds import TARGET_NAMES

    return [kind for kind in TARGET_NAMES if kind.startswith(incomplete)]


def failure_kinds(incomplete: str) -> list[str]:
    """Returns the kinds of failure that start with `incomplete`."""
    from stepset.run_status import FailureKind

    return [kind.value for kind in FailureKind if kind.value.startswith(incomplete)]


def phases(incomplete: str) -> list[str]:
    """Returns the phases that start with `incomplete`, in lower case."""
    from stepset.run_status import Phase

    return [phase.value.lower() for phase in Phase if phase.value.lower().startswith(incomplete.lower())]


def formats(*known: str) -> Callable[[str], list[str]]:
    """Returns a function that returns the formats in `known` that start with its argument."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


def _runs() -> list[RunStatus]:
    """Returns the local runs, the newest first. If the runs cannot be listed, returns an empty list."""
    from stepset.backends import backend_of

    try:
        return sorted(backend_of("local").list(), key=lambda run: run.created, reverse=True)
    except (StepsetError, OSError):
        return []  # a message would appear in the middle of the user's command line
