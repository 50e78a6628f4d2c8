"""Waiting for what another process is about to do: by looking, never by sleeping for as long as it should take."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 90.0
"""Seconds after which something that should have happened counts as hanging, on a machine busy with other things."""


def until(true: Callable[[], bool], seconds: float = LIMIT, every: float = 0.02) -> bool:
    """Whether something becomes true in time.

    Args:
        true: asked again and again.
        seconds: how long at most.
        every: seconds between two looks; longer where a look takes away from those that are waited for.
    """
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
