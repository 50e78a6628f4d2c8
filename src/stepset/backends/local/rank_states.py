"""The states of a local rank, as in `RankStatus.state`."""

from __future__ import annotations

PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED = "Pending", "Running", "Succeeded", "Failed", "Stopped"

ENDED = "Ended"
"""Its process is gone, and its supervisor has not recorded how it ended: not yet, or because it is stuck."""
LOST = "Lost"
"""Its supervisor is gone: how it ended, or whether it still is about to end, is not known."""
