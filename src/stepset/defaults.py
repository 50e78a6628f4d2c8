"""Default values that every interface shares."""

from __future__ import annotations

TARGET = "jobset"
"""The kind of workload that a new run on a cluster has by default."""

STARTUP_TIMEOUT = 1800
"""The number of seconds within which all pods must run after the admission or a restart of a run: 30 minutes."""
