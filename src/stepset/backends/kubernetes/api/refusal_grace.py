"""Decides whether a refusal by the server may be temporary."""

from __future__ import annotations

REFUSAL_GRACE = 60.0
"""The number of seconds after the first refusal (401, 403) during which a refusal may be temporary.

A refusal may be temporary in two cases: the server has allowed the same request before, or has just restarted.
"""


class RefusalGrace:
    """Decides whether to retry a refused request.

    A server that has just started may refuse a request because the server has not loaded all roles yet. `allowed` is
    whether the server has allowed the same request before.
    """

    def __init__(self, allowed: bool = False) -> None:
        self.allowed = allowed
        self._starts = False
        self._since: float | None = None

    def granted(self) -> None:
        """Records that the server allowed the request."""
        self.allowed, self._since = True, None

    def unreachable(self) -> None:
        """Records that the server was down. After a restart, the server may refuse every request for a short time."""
        self._starts, self._since = True, None

    def covers(self, clock: float) -> bool:
        """Returns whether a refusal may be temporary. `clock` is the current time of a monotonic clock in seconds."""
        self._since = clock if self._since is None else self._since
        return (self.allowed or self._starts) and clock - self._since < REFUSAL_GRACE
