"""Ends a local step when the program that started it ends.

A step of KFP's local runner is a Python process below a shell; neither gets a signal when the runner is killed. The
training ends with the step: the agents read from a pipe that closes when the step ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stepset.backends.local.processes import ProcessId, process_stat

_SHELLS = ("sh", "dash", "bash", "ash", "busybox")
_POLL_SECONDS = 0.5
ORPHANED = 143
"""Exit code of a step if the program that started it has ended; the same as after SIGTERM."""


@contextmanager
def ending_with_starter() -> Iterator[None]:
    """Ends this process at once if its first ancestor that is not a shell ends while the block runs."""
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
    """Returns the first ancestor that is not a shell; None if the ancestor has ended or /proc is not readable."""
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
    while not over.wait(_POLL_SECONDS):
        if not starter.exists():
            os._exit(ORPHANED)
