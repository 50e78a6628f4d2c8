"""The pauses before retries, and the maximum number of retries after unexpected exceptions."""

from __future__ import annotations

MAX_RETRIES = 10
"""The maximum number of retries in a row after unexpected exceptions; a user must delete an object that causes them."""
FIRST_DELAY, LONGEST_DELAY = 0.25, 20.0
"""Seconds before a retry: doubled after each failure, up to the longest."""


class Retries:
    """Counts failures in a row."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def exhausted(self) -> bool:
        """Whether the last retry has failed."""
        return self._failures > MAX_RETRIES

    def failed(self) -> float:
        """Records a failure; returns the seconds to wait before the next try."""
        self._failures += 1
        return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self._failures - 1, 16)))

    def succeeded(self) -> None:
        """Records a success: the next failure counts as the first."""
        self._failures = 0
