"""Ends a local step when the program that started it ends.

KFP's local runner leaves its children behind when it is killed: a step is a Python process below a shell, and neither
gets a signal then. When the step ends, its training ends: the agents hold a pipe that closes with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stepset.backends.local.processes import ProcessId, process_stat

_SHELLS = ("sh", "dash", "bash", "ash", "busybox")
_EVERY = 0.5
ORPHANED = 143
"""Exit code of a step whose starter has ended: as if SIGTERM had ended it."""


@contextmanager
def ending_with_starter() -> Iterator[None]:
    """Ends this process at once if its first ancestor that is not a shell ends inside the block."""
    starter = _starter()
    if starter is None:
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(starter, over), name="stepset parent", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _starter() -> ProcessId | None:
    """The ancestor; None if /proc is not readable, or it has ended already."""
    pid = os.getppid()
    while pid > 1:
        stat = process_stat(pid)
        if stat is None or stat.ended:
            return None
        if stat.name not in _SHELLS:
            return ProcessId(pid, stat.started)
        pid = stat.parent
    return None


def _watch(starter: ProcessId, over: threading.Event) -> None:
    while not over.wait(_EVERY):
        if not starter.exists():
            os._exit(ORPHANED)
