"""Completes work of a trigger although Airflow cancels the trigger.

A triggerer cancels an unwanted trigger once a second until it has ended (airflow 3.3 triggerer_job_runner.py,
cancelling_triggers). The first cancellation calls `on_kill`; the next one would interrupt it. Neither asyncio nor anyio
can await a task through repeated cancellations of the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_tasks: set[asyncio.Task[None]] = set()
"""References to the tasks, because the event loop keeps none."""


def spawn(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts a task that continues although no other task awaits it."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def wait_uncancelled(task: asyncio.Task[None], seconds: float) -> None:
    """Awaits a task for at most `seconds` and ignores cancellations of the caller; a longer task continues."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not task.done() and (left := end - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=left)
    if task.done():
        task.result()
