"""Waits for a condition by polling, never by sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

LIMIT = 300.0
"""Seconds after which a condition counts as never true, on a busy machine."""

STARTS_WITHIN = 600.0
"""Seconds in which Airflow, or a run on a cluster, must start; imports take most of the time."""


def until(true: Callable[[], bool], seconds: float = LIMIT, every: float = 0.1) -> bool:
    """Waits until a condition is true; returns whether it became true in time.

    Args:
        true: the condition; called at growing intervals, because each call takes CPU time from other processes.
        seconds: the longest wait.
        every: the longest interval between two calls, in seconds.
    """
    end, pause = time.monotonic() + seconds, 0.01
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(min(pause, every))
        pause *= 1.5
    return True


def attempts(seconds: float, longest: float = 5.0) -> Iterator[bool]:
    """Waits at growing intervals before further attempts; yields before each attempt whether it is the last one.

    Args:
        seconds: the time after which an attempt is the last one.
        longest: the longest interval, in seconds.
    """
    end, pause = time.monotonic() + seconds, 0.1
    while time.monotonic() + pause < end:
        yield False
        time.sleep(pause)
        pause = min(pause * 2, longest)
    yield True
