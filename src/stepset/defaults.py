"""Default values that every interface shares."""

from __future__ import annotations

STARTUP_TIMEOUT = 1800
"""Maximum seconds from a run's admission, or from a restart, until all its pods run: 30 minutes."""
