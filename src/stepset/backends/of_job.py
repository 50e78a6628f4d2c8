"""Finds all runs of a job, and the newest of all runs.

Every interface that deletes the runs of a job uses `names_of_runs`.
"""

from __future__ import annotations

from stepset.backends.base import Backend
from stepset.errors import RunNotFoundError
from stepset.run_filter import RunFilter
from stepset.run_status import RunStatus


def names_of_runs(backend: Backend, job: str) -> list[str]:
    """Returns the names of the runs of a job, the newest first. Raises RunNotFoundError if the job has no runs."""
    runs = RunFilter(jobs=frozenset({job})).select(backend.list())
    if not runs:
        raise RunNotFoundError(f"{job}: there is no run of a job of this name in {backend.place}")
    return [run.name for run in runs]


def newest_run(backend: Backend, place: str = "") -> RunStatus:
    """Returns the newest of all runs. Raises RunNotFoundError if there is no run. The message starts with `place`."""
    runs = backend.list()
    if not runs:
        where = f"{place}: " if place else ""
        raise RunNotFoundError(f"{where}there is no run in {backend.place}; start one with stepset run")
    return max(runs, key=lambda run: run.created)
