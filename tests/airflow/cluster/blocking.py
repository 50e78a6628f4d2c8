"""Finds the callbacks that block an event loop, on a machine with other load.

asyncio's debug mode measures elapsed time. This module subtracts three times that no callback causes: the thread's wait
for a processor, as Linux counts it for each thread; the time for which the host took the processors away; and Python's
garbage collection. The rest is work, or a wait without `await`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a processor, nanoseconds waiting for one, turns (Linux, Documentation/scheduler/sched-stats.rst)."""


@contextmanager
def blocked_for(limit: float) -> Iterator[list[str]]:
    """Collects the callbacks that take longer than a limit, one line each; no other event loop may run meanwhile.

    Args:
        limit: seconds.
    """
    found: list[str] = []
    collecting = _Collecting()
    run = asyncio.Handle._run  # type: ignore[attr-defined]  # every callback of a loop runs through it

    def timed(handle: asyncio.Handle) -> None:
        started, idle = time.monotonic(), _waited() + collecting.seconds + _stolen()
        run(handle)
        took = time.monotonic() - started - (_waited() + collecting.seconds + _stolen() - idle)
        if took > limit:
            found.append(f"{took:.3f} s in {asyncio.base_events._format_handle(handle)}")  # type: ignore[attr-defined]

    asyncio.Handle._run = timed  # type: ignore[attr-defined]
    gc.callbacks.append(collecting)
    try:
        yield found
    finally:
        gc.callbacks.remove(collecting)
        asyncio.Handle._run = run  # type: ignore[attr-defined]


class _Collecting:
    """Measures the seconds that Python spends in garbage collection."""

    def __init__(self) -> None:
        self.seconds = self._started = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.monotonic()
        else:
            self.seconds += time.monotonic() - self._started


def _waited() -> float:
    """Seconds for which this thread has waited for a processor."""
    return int(_SCHEDULED.read_text().split()[1]) / 1e9


def _stolen() -> float:
    """Seconds for which the host took this machine's processors away (steal time)."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
