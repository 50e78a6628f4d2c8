"""Kills processes that outlived their pod, which a variable in their environment identifies.

Processes outlive a pod only if its agent was killed. On systems other than Linux only an agent's process group is
killed.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

POD_MARK = "STEPSET_LOCAL_POD"
"""A variable in the environment of every process of a pod; its value is the pod's directory."""

_PROC = Path("/proc")
_ROUNDS = 20


def processes_of(directory: Path) -> list[int]:
    """Returns the running processes of the pods below `directory` (a pod's, or a run's), except the calling process."""
    wanted = os.fsencode(f"{POD_MARK}={directory}")
    found = []
    try:
        pids = [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]  # noqa: PTH208  # names are all we need
    except FileNotFoundError:
        return []
    for pid in pids:
        # The file is unreadable or empty for a process that has ended, is a zombie or belongs to another user.
        with suppress(OSError):
            environ = (_PROC / str(pid) / "environ").read_bytes()
            if wanted in environ and pid != os.getpid() and _holds(environ, wanted):
                found.append(pid)
    return found


def _holds(environ: bytes, wanted: bytes) -> bool:
    return any(entry == wanted or entry.startswith(wanted + b"/") for entry in environ.split(b"\0"))


def end_processes_of(directory: Path) -> None:
    """Kills the processes of `processes_of`, in rounds, because a process may start others before it is killed."""
    for attempt in range(_ROUNDS):
        pids = processes_of(directory)
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005 * (attempt + 1))
