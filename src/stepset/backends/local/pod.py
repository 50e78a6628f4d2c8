"""One local pod: the agent's process, from its start to its end.

Used by the gang, which waits for all pods' descriptors at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from typing import Any

from stepset.backends.local.layout import PodSpec, config_text
from stepset.backends.local.leftovers import end_processes_of
from stepset.watch.lines import Splitter

_CHUNK = 1024 * 1024


class Pod:
    """A pod that runs, or has run.

    Args:
        spec: what to start.

    Attributes:
        spec: as given.
        lines: splits what it prints.
        ready: it serves.
        exit_code: of the agent, negative for a signal as in subprocess; None while it runs.
        stopped: we told it to end.
        restarts: how often this pod was started again by itself.
    """

    def __init__(self, spec: PodSpec, restarts: int = 0) -> None:
        self.spec = spec
        self.lines = Splitter(spec.source)
        self.ready = False
        self.exit_code: int | None = None
        self.stopped = False
        self.restarts = restarts
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1

    @property
    def running(self) -> bool:
        """Whether its agent has been started and has not been seen to end."""
        return self._process is not None and self.exit_code is None

    def start(self, lifeline: int) -> None:
        """Starts the agent in an empty scratch directory.

        Args:
            lifeline: a pipe's read end that closes when this process is gone.

        Raises:
            OSError: the directory cannot be made, or the agent not be started.
        """
        spec = self.spec
        shutil.rmtree(spec.directory, ignore_errors=True)
        spec.directory.mkdir(parents=True)
        (spec.directory / "config.json").write_text(config_text(spec))
        self._process = subprocess.Popen(
            spec.command,
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=spec.directory,
            env=spec.env,
            # A group and session of its own: Ctrl-C in the terminal is the caller's to handle, not the ranks'.
            start_new_session=True,
        )
        os.set_blocking(self.output, False)
        with suppress(AttributeError, OSError):  # not on macOS; or above the user's share of pipe memory
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _CHUNK)
        with suppress(AttributeError, OSError):  # Linux 5.3 and newer
            self._pidfd = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        """The agent's pid."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> int:
        """The descriptor of what it prints."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def end(self) -> int:
        """A descriptor that is readable once the agent has ended; -1 where the system has none."""
        return self._pidfd

    def read(self) -> bytes | None:
        """What it has printed since; b"" at the end of its output, None for nothing now."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return None

    def has_ended(self) -> bool:
        """Looks whether the agent has ended; its exit code is known from then on."""
        if self._process is not None and self.exit_code is None:
            self.exit_code = self._process.poll()
        return self.exit_code is not None

    def verdict(self) -> Any:
        """What the agent wrote to its termination log, or None."""
        try:
            return json.loads((self.spec.directory / "termination-log").read_bytes())
        except (OSError, ValueError):
            return None

    def terminate(self) -> None:
        """Tells the agent to end: it passes it on, and kills after the grace; told twice it kills at once."""
        self.stopped = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the agent and everything that belongs to its pod."""
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
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
