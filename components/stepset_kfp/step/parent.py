"""Terminates a local step if the program that started the step has exited.

KFP's local runner starts a shell, and the shell starts the step. If the runner is killed, neither of these two
processes receives a signal. When the step exits, a pipe is closed. The agents of the run
read from this pipe, and stop the ranks when the pipe is closed.
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
"""The exit code of a step if the program that started the step has exited. SIGTERM results in the same exit code."""


@contextmanager
def ending_with_starter() -> Iterator[None]:
    """Terminates this process if the starter of the process exits while the `with` block runs.

    The starter is the first ancestor of the process that is not a shell. If the starter cannot be determined, the
    context manager does nothing.
    """
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
    """Returns the first ancestor of this process that is not a shell.

    Returns None if this ancestor has exited, or if /proc is not readable.
    """
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
