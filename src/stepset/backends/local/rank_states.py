"""The states of a local rank, as in `RankStatus.state`."""

from __future__ import annotations

PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED = "Pending", "Running", "Succeeded", "Failed", "Stopped"

ENDED = "Ended"
"""The process of the rank has exited. The supervisor has not recorded the result yet, or the supervisor is stuck."""
LOST = "Lost"
"""The supervisor has exited. Nothing is known about the process of the rank and its exit code."""
