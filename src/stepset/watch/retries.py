"""Determines the delays before retries, and the maximum number of retries after unexpected exceptions."""

from __future__ import annotations

MAX_RETRIES = 10
"""The maximum number of retries in a row after unexpected exceptions. Further retries cannot help, because an object
may cause the exceptions until a user deletes it."""
FIRST_DELAY, LONGEST_DELAY = 0.25, 20.0
"""The first number is the delay before a retry, in seconds. Each failure doubles the delay. The second number is the
maximum delay."""


class Retries:
    """Counts the failures since the last success."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def exhausted(self) -> bool:
        """Whether all permitted retries have failed."""
        return self._failures > MAX_RETRIES

    def failed(self) -> float:
        """Records a failure, and returns the number of seconds to wait before the next attempt."""
        self._failures += 1
        return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self._failures - 1, 16)))

    def succeeded(self) -> None:
        """Records a success. Resets the delay to its minimum."""
        self._failures = 0
