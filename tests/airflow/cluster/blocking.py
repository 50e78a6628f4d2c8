"""Which callbacks of an event loop have blocked it, on a machine that does other things too.

asyncio's own debug mode counts what the clock says. Here three things are taken off for which no callback can be
blamed: the time that the thread has only waited for a processor, as Linux counts it for each thread, that for which the
host had taken the processors away, and that of Python's garbage collection. What remains is work, or waiting for
something that was not awaited.
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
    """The callbacks that take longer than a limit, each as a line; to be used while no other loop runs.

    Args:
        limit: seconds.
    """
    found: list[str] = []
    collecting = _Collecting()
    run = asyncio.Handle._run  # type: ignore[attr-defined]  # what every callback of a loop goes through

    def timed(handle: asyncio.Handle) -> None:
        begun, idle = time.monotonic(), _waited() + collecting.seconds + _stolen()
        run(handle)
        took = time.monotonic() - begun - (_waited() + collecting.seconds + _stolen() - idle)
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
    """How long Python has collected garbage."""

    def __init__(self) -> None:
        self.seconds = self._begun = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.monotonic()
        else:
            self.seconds += time.monotonic() - self._begun


def _waited() -> float:
    """Seconds for which this thread has waited for a processor."""
    return int(_SCHEDULED.read_text().split()[1]) / 1e9


def _stolen() -> float:
    """Seconds for which the host has kept this machine's processors to itself."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
