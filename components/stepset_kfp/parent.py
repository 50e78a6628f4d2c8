"""A local step ends with the program that started it. Called by step.py, for local runs only.

KFP's local runner leaves its children behind when it is killed: a step is a Python below a shell, and neither hears of
it. When the step goes, its training goes: the agents hang on a pipe that ends with it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_SHELLS = ("sh", "dash", "bash", "ash", "busybox")
_EVERY = 0.5
ORPHANED = 143
"""Exit code of a step whose starter is gone: as if SIGTERM had ended it."""


def end_with_starter() -> None:
    """Watches the first ancestor that is no shell; ends this process, without ado, when that one is gone."""
    starter = _starter()
    if starter is not None:
        threading.Thread(target=_watch, args=starter, name="stepset parent", daemon=True).start()


def _starter() -> tuple[int, str] | None:
    """Its pid and start time; None where /proc does not tell, or it is gone already."""
    pid = os.getppid()
    while pid > 1:
        fields = _stat(pid)
        if fields is None:
            return None
        name, parent, started = fields
        if name not in _SHELLS:
            return pid, started
        pid = parent
    return None


def _watch(pid: int, started: str) -> None:
    while True:
        now = _stat(pid)
        if now is None or now[2] != started:
            os._exit(ORPHANED)
        time.sleep(_EVERY)


def _stat(pid: int) -> tuple[str, int, str] | None:
    """Name, parent and start time of a process (proc(5), stat); None when it is gone, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return None if fields[0] in "ZX" else (name, int(fields[1]), fields[19])
