"""Waits for something to its end, although Airflow cancels whoever waits for it.

Used by handover.py and triggers.py. A triggerer cancels a trigger that is wanted no more at each look at its triggers,
once a second, until it has ended (airflow 3.3 triggerer_job_runner.py, cancelling_triggers); the first is what calls
`on_kill`, and the next one would cut that short, or come before it is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_under_way: set[asyncio.Task[None]] = set()
"""Nobody else may hold what goes on by itself."""


def begun(what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begins something that goes on whether somebody waits for it or not.

    Args:
        what: it.
    """
    task = asyncio.get_running_loop().create_task(what)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task


async def seen_through(task: asyncio.Task[None], seconds: float) -> None:
    """Waits for something that has begun; what is not done in time goes on by itself.

    Args:
        task: as `begun` gives it.
        seconds: to wait at most.

    Raises:
        Exception: whatever it raises in time.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not task.done() and (left := end - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=left)
    if task.done():
        task.result()
