"""Kills all processes of a test's Airflow and removes its directory once the tests have ended.

airflow.py starts it as a separate program and keeps its standard input open. The input closes when the tests end, and
also when they are killed. `python -m tests.airflow.stack.process_supervisor DIRECTORY`
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
    """The ids of the processes that started with the directory as AIRFLOW_HOME, or were forked by one that did."""
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
    """Kills all processes and removes the directory."""

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
            os.kill(int(postmaster.read_text().split()[0]), signal.SIGQUIT)  # stops at once and frees its shared memory
        until(lambda: not postmaster.exists())
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    end(Path(sys.argv[1]))
