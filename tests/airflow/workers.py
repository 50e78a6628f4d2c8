"""DAG files that run in processes of their own, as `python FILE` would run them, and that tests tell to end, or kill.

The processes are forked from one that has imported Airflow (forking.py).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.airflow.harness import ROOT
from tests.waiting import LIMIT, STARTS_WITHIN


class Worker:
    """A process that runs a DAG file; what can be asked of it is called as in subprocess.Popen.

    Args:
        told: the socket through which its id comes and, when it is over, how it ended.
        output: the file that it writes to.
    """

    def __init__(self, told: socket.socket, output: IO[bytes]) -> None:
        self._told, self._output = told, output
        self.pid = self._number(STARTS_WITHIN)
        self.returncode: int | None = None

    @property
    def output(self) -> str:
        """What it has printed and logged until now."""
        file = self._output.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")  # its own place in it must not move

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with suppress(BlockingIOError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its exit code, for which this waits some seconds; where they are over there is a TimeoutError."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(self._number(timeout))
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, number)

    def _number(self, timeout: float) -> int:
        self._told.settimeout(timeout)
        number = self._told.recv(100)
        assert number, "the process that workers are forked from is gone; what it said is on standard error"
        return int(number)


StartWorker = Callable[..., AbstractContextManager[Worker]]


@contextmanager
def forked_workers(*modules: str) -> Iterator[StartWorker]:
    """`with start(path) as worker:` runs a DAG file in a process that is gone after the block.

    The process gets the environment that there is when it is started, and the variables that a second argument has.

    Args:
        modules: what runs of these files import besides, and what takes its time.
    """
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @contextmanager
    def start(path: Path, variables: Mapping[str, str] | None = None) -> Iterator[Worker]:
        request = {"path": str(path), "directory": str(Path.cwd()), "environment": {**os.environ, **(variables or {})}}
        ours, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, tempfile.TemporaryFile() as output:
            with told:
                socket.send_fds(requests, [json.dumps(request).encode()], [output.fileno(), told.fileno()])
            worker = Worker(ours, output)
            try:
                yield worker
            finally:
                worker.kill()
                worker.wait(LIMIT)

    with requests:
        with theirs:
            command = [sys.executable, "-m", "tests.airflow.forking", str(theirs.fileno()), *modules]
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing)
        with process:
            try:
                yield start
            finally:
                process.kill()
