"""Which ended runs `stepset prune` and `stepset delete` delete. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepset.errors import BadInputError, RunNotFoundError
from stepset.run_status import Phase, RunStatus


@dataclass(frozen=True)
class PruneRule:
    """Selects ended runs: those whose `ttl` is over, and old ones.

    Args:
        older_than: seconds since its end after which a run is selected whatever its ttl; None: only the ttl counts.
        failed: whether to select only runs that did not succeed.
    """

    older_than: float | None = None
    failed: bool = False

    def selects(self, status: RunStatus, now: float) -> bool:
        """Whether a run is to be deleted; `now` is in seconds since the epoch. A run that is not over never is."""
        if not status.phase.final or (self.failed and status.phase is Phase.SUCCEEDED):
            return False
        ended = status.finished
        old = self.older_than is not None and ended is not None and ended + self.older_than <= now
        return old or status.expired(now)


def check_deletable(runs: Iterable[RunStatus]) -> None:
    """Raises BadInputError if a run is not over."""
    if active := [run for run in runs if not run.phase.final]:
        raise BadInputError(*map(_not_over, active))


def _not_over(run: RunStatus) -> str:
    return f"{run.name}: the run is not over: {run.phase.value}; stop it first: stepset cancel {run.name}"


def not_a_run(name: str, newest: str) -> RunNotFoundError:
    """Returns the error for the name of a job where that of a run is required."""
    return RunNotFoundError(f"{name}: no such run; it is the name of a job, whose newest run is {newest}")
