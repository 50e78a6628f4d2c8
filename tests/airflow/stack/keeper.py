"""Ends every process of an Airflow of the tests, and removes its directory, once whoever started it is gone.

airflow.py starts it as a program of its own and keeps its standard input open: that closes when the tests are over,
and also when they are killed. `python -m tests.airflow.stack.keeper DIRECTORY`
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tests.waiting import until


def processes_of(directory: Path) -> list[int]:
    """The processes whose AIRFLOW_HOME is the directory; they started with it, or were forked by one that did."""
    mark = f"AIRFLOW_HOME={directory}".encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (each / "environ").read_bytes().split(b"\0") and not _is_dead(each):
                found.append(int(each.name))
    return found


def _is_dead(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def end(directory: Path) -> None:
    """Ends everything and removes the directory."""

    def none_left() -> bool:
        left = [pid for pid in processes_of(directory) if pid != os.getpid()]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    until(none_left)
    postmaster = directory / "postgres/data/postmaster.pid"
    if postmaster.exists():
        with suppress(ProcessLookupError):
            os.kill(int(postmaster.read_text().split()[0]), signal.SIGQUIT)  # at once, its shared memory given back
        until(lambda: not postmaster.exists())
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    end(Path(sys.argv[1]))
