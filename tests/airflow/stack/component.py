"""A process of Airflow and its descendants, which a test can kill, freeze and thaw together, as a machine.

airflow.py creates the components.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.waiting import until


class Component:
    """A scheduler, triggerer, API server or DAG processor.

    Args:
        name: its name.
        command: its command line.
        env: its environment.
        log: the file for its output.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The id of its main process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its main process runs."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Waits until it has ended."""
        self._process.wait(60)

    def kill(self) -> None:
        """Kills it and its descendants at once, as a power failure does."""
        self.signal(signal.SIGSTOP)  # no process observes the death of another
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Terminates it, as a deployment does, and waits until it has ended."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def freeze(self) -> None:
        """Suspends all its processes."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resumes all its processes."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and to its descendants."""
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """The ids of a process's children, their children, and so on."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def parent(pid: int) -> int:
    """The id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(*pids: int) -> None:
    """Kills processes at once and waits until they have ended."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    assert until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
