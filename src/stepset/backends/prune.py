"""Which ended runs `stepset prune` deletes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
