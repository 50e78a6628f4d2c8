"""One process of Airflow with all that it has started: killed, frozen and thawed as a machine would be.

Made by airflow.py; the tests end and freeze components through it.
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
        name: of its log file.
        command: its command line.
        env: its environment.
        log: where it writes.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Of its main process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its main process runs."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Until it has ended."""
        self._process.wait(60)

    def kill(self) -> None:
        """Ends it and everything it has started at once, as a machine that loses its power."""
        self.signal(signal.SIGSTOP)  # nobody sees another one die
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Tells it to end, as a deployment does, and waits until it has."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def freeze(self) -> None:
        """Stops all its processes where they are."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets them go on."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and to everything it has started."""
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those these have started."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def parent(pid: int) -> int:
    """The process that has started a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(*pids: int) -> None:
    """Ends processes at once and waits until they are gone."""
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
