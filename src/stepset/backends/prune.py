"""Decides which runs can be deleted, for `stepset prune` and `stepset delete`. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepset.errors import BadInputError, RunNotFoundError
from stepset.run_status import Phase, RunStatus


@dataclass(frozen=True)
class PruneRule:
    """Selects finished runs whose `ttl` has expired, and finished runs of a certain age.

    Args:
        older_than: a number of seconds. A run that finished longer ago is selected, even if its ttl has not expired.
            If None, only the ttl is used.
        failed: whether to select only runs that did not succeed.
        only: the names and creation times of the runs that may be selected. If None, all runs may be selected.
    """

    older_than: float | None = None
    failed: bool = False
    only: frozenset[tuple[str, float]] | None = None

    def limited_to(self, runs: Iterable[RunStatus]) -> PruneRule:
        """Returns a rule that selects those of `runs` that this rule still selects.

        A newer run with the name of one of `runs` is not selected.
        """
        return replace(self, only=frozenset((run.name, run.created) for run in runs))

    def selects(self, status: RunStatus, now: float) -> bool:
        """Returns whether the rule selects a run. `now` is in seconds since the epoch.

        A run that has not finished is never selected.
        """
        if self.only is not None and (status.name, status.created) not in self.only:
            return False
        if not status.phase.final or (self.failed and status.phase is Phase.SUCCEEDED):
            return False
        ended = status.finished
        old = self.older_than is not None and ended is not None and ended + self.older_than <= now
        return old or status.expired(now)


def check_deletable(runs: Iterable[RunStatus]) -> None:
    """Raises BadInputError if a run has not finished."""
    if active := [run for run in runs if not run.phase.final]:
        raise BadInputError(*map(_not_over, active))


def _not_over(run: RunStatus) -> str:
    return f"{run.name}: the run is not over: {run.phase.value}; cancel it first"


def not_a_run(name: str, newest: str) -> RunNotFoundError:
    """Returns the error for the name of a job or of an Airflow task that is given instead of the name of a run.

    Only the name of a task contains a dot.
    """
    if "." in name:
        return RunNotFoundError(f"{name}: no such run; it is the name of a task, whose newest run is {newest}")
    return RunNotFoundError(
        f"{name}: no such run; it is the name of a job, whose newest run is {newest}; to delete all runs of the job:"
        f" stepset delete --job {name} (in Python: stepset.delete(job={name!r}))"
    )
