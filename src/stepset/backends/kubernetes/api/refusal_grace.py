"""Decides whether a refusal by the server may be temporary."""

from __future__ import annotations

REFUSAL_GRACE = 60.0
"""Seconds for which a refusal (401, 403) may be temporary, after a request that was allowed or after a restart."""


class RefusalGrace:
    """Decides whether to retry a refused request: a server that has just started has not loaded all roles yet.

    `allowed` is whether the server has allowed the same request before.
    """

    def __init__(self, allowed: bool = False) -> None:
        self.allowed = allowed
        self._starts = False
        self._since: float | None = None

    def granted(self) -> None:
        """Records that the server allowed the request."""
        self.allowed, self._since = True, None

    def unreachable(self) -> None:
        """Records that the server was down: after a restart it may refuse every request at first."""
        self._starts, self._since = True, None

    def covers(self, clock: float) -> bool:
        """Whether a refusal may be temporary; `clock` is in seconds of a monotonic clock."""
        self._since = clock if self._since is None else self._since
        return (self.allowed or self._starts) and clock - self._since < REFUSAL_GRACE
