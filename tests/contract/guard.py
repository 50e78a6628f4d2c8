"""Measures the CPU time of each callback of an event loop.

The time is the thread's CPU time (`time.thread_time`), not wall time, so other processes on the machine and waits for
the interpreter's lock do not count. Python's garbage collection does not count either: it may run in any callback. Used
by the processes of the contract suite through `tests/contract/site/sitecustomize.py`, and by any test through
`callbacks_over`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIMIT = 0.5
"""Seconds of CPU time that a callback may take, on a machine whose speed varies."""
VARIABLE = "STEPSET_CONTRACT_GUARD"
"""Names the file to which callbacks over the limit are written."""
_FOREIGN = ("TriggerRunner.arun(", "TriggerRunner.block_watchdog(")
"""Airflow's own tasks that block its event loop, such as the one that imports the classes of triggers."""


def watch_callbacks(limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
    """Measures every callback of every event loop of this process from now on; returns a function that stops it.

    Args:
        limit: seconds of CPU time.
        report: called with the CPU time of a callback over the limit and its description, in the loop's thread.
    """
    run = asyncio.Handle._run  # every callback of a loop is called by it (Python 3.11 to 3.14)
    collection = _Collection()

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time() - collection.seconds
        try:
            run(handle)
        finally:
            took = time.thread_time() - collection.seconds - began
            if took > limit:
                what = asyncio.base_events._format_handle(handle)  # type: ignore[attr-defined]
                if not any(each in what for each in _FOREIGN):
                    report(took, what)

    asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]
    gc.callbacks.append(collection)

    def stop() -> None:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.remove(collection)

    return stop


class _Collection(threading.local):
    """The CPU seconds that the current thread has spent in garbage collection."""

    seconds = began = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self.began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self.began


@contextmanager
def callbacks_over(limit: float = LIMIT) -> Iterator[list[str]]:
    """Lists the callbacks that exceed a limit while the block runs, each as a line.

    Args:
        limit: seconds of CPU time.
    """
    found: list[str] = []
    stop = watch_callbacks(limit, lambda took, what: found.append(f"{took:.3f} s in {what}"))
    try:
        yield found
    finally:
        stop()


def watch_this_process() -> None:
    """Writes callbacks over the limit to the file that `VARIABLE` names, each as a line of JSON."""

    def report(took: float, what: str) -> None:
        if path := os.environ.get(VARIABLE):
            with open(path, "a") as file:  # noqa: PTH123  # at interpreter start pathlib is not imported yet
                file.write(json.dumps({"seconds": round(took, 3), "callback": what}) + "\n")

    watch_callbacks(LIMIT, report)
