"""Runs code of a trigger to completion although Airflow cancels the trigger repeatedly.

When a trigger must stop, the triggerer cancels the trigger once a second until the trigger has finished (airflow 3.3
triggerer_job_runner.py, cancelling_triggers). The first cancellation calls `on_kill`. Without this module, the second
cancellation would interrupt `on_kill`. asyncio and anyio have no function for this purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_tasks: set[asyncio.Task[None]] = set()
"""References to the running tasks. The event loop itself keeps only weak references to tasks."""


def spawn(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts a task that runs to completion, even if no other task awaits this task."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def wait_uncancelled(task: asyncio.Task[None], seconds: float) -> None:
    """Waits at most `seconds` until a task has finished. A cancellation of the waiting coroutine is ignored.

    If the task has not finished after `seconds`, the task continues to run.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not task.done() and (left := end - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=left)
    if task.done():
        task.result()
