"""For how long a refusal may be temporary."""

from __future__ import annotations

REFUSES_AT_START = 60.0
"""Seconds for which a server may refuse (401, 403) what it allowed before, or anything after its start."""


class RefusalGrace:
    """Whether to retry after a refusal: a server that has just started does not know all accounts and roles yet.

    `allowed`: the server has allowed the same request before.
    """

    def __init__(self, allowed: bool = False) -> None:
        self.allowed = allowed
        self._starts = False
        self._since: float | None = None

    def granted(self) -> None:
        """Records that the server allowed the request."""
        self.allowed, self._since = True, None

    def unreachable(self) -> None:
        """Records that the server was down: after its start it may first refuse everything."""
        self._starts, self._since = True, None

    def covers(self, clock: float) -> bool:
        """Whether a refusal may be temporary; `clock` is in seconds of a monotonic clock."""
        self._since = clock if self._since is None else self._since
        return (self.allowed or self._starts) and clock - self._since < REFUSES_AT_START
