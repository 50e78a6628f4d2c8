"""Processes that outlived their pod: found by the mark in their environment, and ended.

The agents see to it that nothing survives them. This is for what they cannot see to: an agent that was itself killed.
Linux only; elsewhere an agent's process group is all that is ended.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

POD_MARK = "STEPSET_LOCAL_POD"
"""In the environment of every process of a pod: the pod's directory."""

_PROC = Path("/proc")
_ROUNDS = 20


def processes_of(directory: Path) -> list[int]:
    """Living processes of the pods below `directory` (a pod's, or a run's); this one is never among them."""
    wanted = os.fsencode(f"{POD_MARK}={directory}")
    found = []
    try:
        pids = [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]  # noqa: PTH208  # names are all we need
    except FileNotFoundError:
        return []
    for pid in pids:
        # Gone by now, somebody else's, or a zombie, whose environment is empty: none of ours that lives.
        with suppress(OSError):
            environ = (_PROC / str(pid) / "environ").read_bytes()
            if wanted in environ and pid != os.getpid() and _holds(environ, wanted):
                found.append(pid)
    return found


def _holds(environ: bytes, wanted: bytes) -> bool:
    return any(entry == wanted or entry.startswith(wanted + b"/") for entry in environ.split(b"\0"))


def end_processes_of(directory: Path) -> int:
    """Kills what `processes_of` finds until nothing is left; how many that were.

    Some rounds are needed, because what is killed may just have started another.
    """
    ended: set[int] = set()
    for attempt in range(_ROUNDS):
        pids = processes_of(directory)
        if not pids:
            break
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended.update(pids)
        time.sleep(0.005 * (attempt + 1))
    return len(ended)
