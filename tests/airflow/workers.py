"""Runs DAG files in separate processes, as `python FILE` does, so that tests can terminate or kill them.

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
    """A process that runs a DAG file; its methods have the names of subprocess.Popen's.

    Args:
        replies: the socket that delivers its id and, once it has ended, its status.
        output: the file with its output.
    """

    def __init__(self, replies: socket.socket, output: IO[bytes]) -> None:
        self._replies, self._output = replies, output
        self.pid = self._number(STARTS_WITHIN)
        self.returncode: int | None = None

    @property
    def output(self) -> str:
        """All that it has printed and logged so far."""
        file = self._output.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")  # pread keeps the file position

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with suppress(BlockingIOError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Waits for its end and returns its exit code; raises TimeoutError after `timeout` seconds."""
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
        self._replies.settimeout(timeout)
        number = self._replies.recv(100)
        assert number, "the process that forks workers has ended; its errors are on standard error"
        return int(number)


StartWorker = Callable[..., AbstractContextManager[Worker]]


@contextmanager
def forked_workers(*modules: str) -> Iterator[StartWorker]:
    """`with start(path) as worker:` runs a DAG file in a process and kills it after the block.

    The process gets the current environment, and the variables in the second argument.

    Args:
        modules: additional modules that these files import, to be imported once before the forks.
    """
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @contextmanager
    def start(path: Path, variables: Mapping[str, str] | None = None) -> Iterator[Worker]:
        request = {"path": str(path), "directory": str(Path.cwd()), "environment": {**os.environ, **(variables or {})}}
        ours, replies = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, tempfile.TemporaryFile() as output:
            with replies:
                socket.send_fds(requests, [json.dumps(request).encode()], [output.fileno(), replies.fileno()])
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
