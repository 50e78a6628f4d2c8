"""Manages the process of a local pod's agent, from the start of the process to its exit."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from stepset.backends.local.layout import PodSpec
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.ports.guard import Guard
from stepset.backends.local.private_files import make_directories, read_regular, write_private
from stepset.directory_trees import discard_tree
from stepset.watch.lines import Splitter
from stepset.watch.state.termination_message import read_termination_message

_CHUNK = 1024 * 1024


class LocalPod:
    """A local pod.

    Attributes:
        ready: whether the agent has reported that it serves `rsh` requests.
        exit_code: the exit code of the agent, or None before the agent has exited. The exit code -N means that signal N
            terminated the agent.
        stopped_at: when this process asked the pod to stop, in seconds since the epoch. None if it has not.
        end: a descriptor that becomes readable when the agent has exited, or -1 if the system has no such descriptor.
    """

    def __init__(self, spec: PodSpec) -> None:
        self.spec = spec
        self.lines = Splitter(spec.source)
        self.ready = False
        self.exit_code: int | None = None
        self.stopped_at: float | None = None
        self.end = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the agent was started, and `has_ended` has not returned True yet."""
        return self._process is not None and self.exit_code is None

    def start(self, lifeline: int, guard: Guard | None, stdin: int | None = None) -> None:
        """Starts the agent in an empty directory. Raises OSError.

        Args:
            lifeline: a pipe that closes when this process exits.
            guard: the object that confines the ports of the pod to this machine. None: the ports are not confined.
            stdin: the standard input of the pod's command. Default: none.
        """
        # The lifeline is the standard input of the agent. `stdin` is for the pod's command.
        passed = os.dup(stdin) if stdin is not None else -1
        try:
            self._start(lifeline, guard, passed)
        finally:
            if passed >= 0:
                os.close(passed)

    def _start(self, lifeline: int, guard: Guard | None, stdin: int) -> None:
        spec = self.spec
        discard_tree(spec.directory)
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
            # The pod has a separate process group and session. Therefore Ctrl-C in the terminal reaches only the caller
            # and not the ranks.
            start_new_session=True,
            pass_fds=(*(() if guard is None else (guard.descriptor,)), *((stdin,) if stdin >= 0 else ())),
        )
        os.set_blocking(self.output, False)
        # macOS has no F_SETPIPE_SZ (AttributeError). A user may have reached the limit of pipe memory (OSError).
        with suppress(AttributeError, OSError):
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
        """Returns new output. Returns b"" at the end of the output, and None if there is currently no new output."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return None

    def has_ended(self) -> bool:
        """Returns whether the agent has exited. If True, `exit_code` is set."""
        if self._process is not None and self.exit_code is None:
            self.exit_code = self._process.poll()
        return self.exit_code is not None

    def verdict(self) -> Mapping[str, Any] | None:
        """Returns the agent's verdict on a failure, from its termination log. Returns None if there is no verdict."""
        try:
            message = read_regular(self.spec.directory / "termination-log").decode("utf-8", "replace")
        except OSError:
            return None
        return read_termination_message(message, self.exit_code or 0, agent=True).failed

    def terminate(self) -> None:
        """Asks the agent to stop its pod within the grace period. A second call stops the pod at once."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the agent and every process of its pod."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        end_processes_of(self.spec.directory)

    def _signal(self, number: int) -> None:
        self.stopped_at = self.stopped_at or time.time()
        if self._process is not None and self.exit_code is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Closes the descriptors of a pod that has exited."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
