"""Kills processes that still run after their pod has stopped. A variable in their environment identifies the pod.

Such processes exist only if the agent of their pod was killed. On systems other than Linux, only the process group of
an agent is killed.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

POD_MARK = "STEPSET_LOCAL_POD"
"""The name of a variable in the environment of every process of a pod. Its value is the pod's directory."""

_PROC = Path("/proc")
_ROUNDS = 20


def processes_of(directory: Path) -> list[int]:
    """Returns the pids of the running processes of the pods in `directory`, except the calling process.

    Args:
        directory: the directory of a pod or of a run.
    """
    wanted = os.fsencode(f"{POD_MARK}={directory}")
    found = []
    try:
        pids = [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]  # noqa: PTH208  # names are all we need
    except FileNotFoundError:
        return []
    for pid in pids:
        # The file is empty or unreadable if the process has exited, is a zombie or belongs to another user.
        with suppress(OSError):
            environ = (_PROC / str(pid) / "environ").read_bytes()
            if wanted in environ and pid != os.getpid() and _holds(environ, wanted):
                found.append(pid)
    return found


def _holds(environ: bytes, wanted: bytes) -> bool:
    return any(entry == wanted or entry.startswith(wanted + b"/") for entry in environ.split(b"\0"))


def end_processes_of(directory: Path) -> None:
    """Kills the processes that `processes_of` returns, in several rounds.

    One round may not be sufficient, because a process can start other processes before it is killed.
    """
    for attempt in range(_ROUNDS):
        pids = processes_of(directory)
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005 * (attempt + 1))
