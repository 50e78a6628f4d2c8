"""Waits for something for so long at most, and is cancelled whenever whoever waits is.

Used by follower.py, async_logs.py and the page's writer. `asyncio.wait_for` of Python 3.10 and 3.11 loses a
cancellation that comes as what it waits for is done (https://github.com/python/cpython/issues/86296): whoever was
cancelled went on as if nothing had been said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def within(seconds: float, what: Coroutine[Any, Any, object]) -> bool:
    """Waits for something; whether it was done in time. What was not has ended, cancelled, when this comes back.

    Args:
        seconds: to wait at most.
        what: it.

    Raises:
        Exception: whatever it raises in time.
        CancelledError: whoever waits was cancelled.
    """
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            task.result()
            return True
        return False
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
