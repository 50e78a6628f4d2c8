"""Waiting for what another process is about to do: by looking, never by sleeping for as long as it should take."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 90.0
"""Seconds after which something that should have happened counts as hanging, on a machine busy with other things."""

STARTS_WITHIN = 600.0
"""Seconds that an Airflow, or a run on a cluster, has to come up in; most of them go by with imports."""


def until(true: Callable[[], bool], seconds: float = LIMIT, every: float = 0.1) -> bool:
    """Whether something becomes true in time.

    Args:
        true: asked again and again, the more rarely the longer it takes: a look takes away from who is waited for.
        seconds: how long at most.
        every: seconds between two looks at most.
    """
    end, pause = time.monotonic() + seconds, 0.01
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(min(pause, every))
        pause *= 1.5
    return True
