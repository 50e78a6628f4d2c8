"""One local pod: the agent's process, from its start to its end."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from typing import Any

from stepset.backends.local.layout import PodSpec
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.ports.guard import Guard
from stepset.backends.local.private_files import make_directories, read_regular, write_private
from stepset.watch.bounded_json import parse_json
from stepset.watch.lines import Splitter

_CHUNK = 1024 * 1024


class Pod:
    """A local pod.

    Attributes:
        ready: whether the agent reported that it serves `rsh` requests.
        exit_code: the agent's exit code, negative for a signal as in subprocess; None before its end.
        stopped: whether this process requested the pod's end.
        end: a descriptor that is readable once the agent has ended; -1 if the system has none.
    """

    def __init__(self, spec: PodSpec) -> None:
        self.spec = spec
        self.lines = Splitter(spec.source)
        self.ready = False
        self.exit_code: int | None = None
        self.stopped = False
        self.end = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the agent was started, and `has_ended` has not returned True yet."""
        return self._process is not None and self.exit_code is None

    def start(self, lifeline: int, guard: Guard | None, stdin: int | None = None) -> None:
        """Starts the agent in an empty scratch directory; raises OSError.

        `lifeline` closes when this process ends; `guard` confines the pod's ports to this machine; `stdin` is the
        standard input of the pod's command, default: none.
        """
        # The agent's own standard input is the lifeline.
        passed = os.dup(stdin) if stdin is not None else -1
        try:
            self._start(lifeline, guard, passed)
        finally:
            if passed >= 0:
                os.close(passed)

    def _start(self, lifeline: int, guard: Guard | None, stdin: int) -> None:
        spec = self.spec
        shutil.rmtree(spec.directory, ignore_errors=True)
        make_directories(spec.directory)
        write_private(
            spec.directory / "config.json", json.dumps({**spec.config, "stdin": stdin} if stdin >= 0 else spec.config)
        )
        self._process = subprocess.Popen(
            spec.command if guard is None else guard.command(spec.command),
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=spec.directory,
            env=spec.env,
            # A group and session of its own: the caller handles Ctrl-C in the terminal, not the ranks.
            start_new_session=True,
            pass_fds=(*(() if guard is None else (guard.descriptor,)), *((stdin,) if stdin >= 0 else ())),
        )
        os.set_blocking(self.output, False)
        with suppress(AttributeError, OSError):  # not on macOS, or above the user's limit of pipe memory
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _CHUNK)
        with suppress(AttributeError, OSError):  # Linux 5.3 and newer
            self.end = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> int:
        """The descriptor of the agent's output."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> bytes | None:
        """Returns new output; b"" at its end, None if there is none now."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return None

    def has_ended(self) -> bool:
        """Whether the agent has ended; from then on `exit_code` is set."""
        if self._process is not None and self.exit_code is None:
            self.exit_code = self._process.poll()
        return self.exit_code is not None

    def verdict(self) -> Any:
        """Returns the content of the agent's termination log, or None."""
        try:
            return parse_json(read_regular(self.spec.directory / "termination-log"))
        except (OSError, ValueError):
            return None

    def terminate(self) -> None:
        """Signals the agent to end its pod: with the grace period, or at once if this is the second request."""
        self.stopped = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the agent and every process of its pod."""
        self.stopped = True
        self._signal(signal.SIGKILL)
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        end_processes_of(self.spec.directory)

    def _signal(self, number: int) -> None:
        if self._process is not None and self.exit_code is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Closes the descriptors of a pod that has ended."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
