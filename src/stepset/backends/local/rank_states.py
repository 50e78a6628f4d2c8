"""The states of a local rank, as in `RankStatus.state`."""

from __future__ import annotations

PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED = "Pending", "Running", "Succeeded", "Failed", "Stopped"

ENDED = "Ended"
"""The rank's process has ended, and the supervisor has not recorded the result yet, or is stuck."""
LOST = "Lost"
"""The supervisor has ended; it is unknown whether the rank still runs, and how it ended."""
