"""The states of a local rank, as in `RankStatus.state`."""

from __future__ import annotations

PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED = "Pending", "Running", "Succeeded", "Failed", "Stopped"

ENDED = "Ended"
"""Its process has ended, and its supervisor has not recorded how: not yet, or because the supervisor is stuck."""
LOST = "Lost"
"""Its supervisor has ended: how the rank ended, or whether it still runs, is not known."""
