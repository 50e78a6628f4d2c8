"""Runs the agent as pods do: as a process, with a config file, and its output in a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.agent import BUILT_FILE
from tests.agent.launchers import TORCHRUN
from tests.waiting import LIMIT, until

AGENT = BUILT_FILE


@dataclass(frozen=True)
class Ended:
    """An agent that has ended."""

    exit_code: int
    out: bytes
    err: bytes
    log: bytes

    def lines(self, source: str) -> list[bytes]:
        """Returns the lines of one source, in order, without their prefixes."""
        head = b"[%s] " % source.encode()
        return [line[len(head) :] for line in self.out.split(b"\n") if line.startswith(head)]

    def raw(self, source: str) -> bytes:
        """Returns all bytes of one source, with the parts joined."""
        head, part_head = b"[%s] " % source.encode(), b"[%s+] " % source.encode()
        raw = b""
        for line in self.out.split(b"\n"):
            if line.startswith(head):
                raw += line[len(head) :] + b"\n"
            elif line.startswith(part_head):
                raw += line[len(part_head) :]
        return raw

    def events(self, name: str) -> list[dict[str, Any]]:
        """Returns the events with one name, in order."""
        return [e for e in (json.loads(line) for line in self.lines("stepset")) if e["event"] == name]

    def event(self, name: str) -> dict[str, Any]:
        """Returns the only event with this name."""
        (event,) = self.events(name)
        return event

    @property
    def verdict(self) -> dict[str, Any]:
        """Returns the failure in the termination log."""
        failed: dict[str, Any] = json.loads(self.log)["stepset"]["failed"]
        return failed


class Running:
    """A running agent; a context manager, so that no test leaves one behind."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, mark: str) -> None:
        self.process = process
        self._log = log
        self._mark = mark
        self._out = b""

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        for pid in self.alive():
            with suppress(ProcessLookupError):  # its parent's death may end it first
                os.kill(pid, signal.SIGKILL)

    @property
    def printed(self) -> bytes:
        """Returns the output that `wait_for_line` has read."""
        return self._out

    def wait_for_line(self, text: bytes, times: int = 1) -> bytes:
        """Reads until `times` lines have contained `text`; returns the last of them."""
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, b""):
            self._out += line
            times -= text in line
            if not times:
                return line
        raise AssertionError(f"{text!r} was not printed; the output is {self._out!r}")

    def read_in_parts(self, size: int) -> Iterator[bytes]:
        """Yields its further output, in parts of at least `size` bytes."""
        assert self.process.stdout is not None
        chunks: list[bytes] = []
        while chunk := os.read(self.process.stdout.fileno(), 1 << 20):
            chunks.append(chunk)
            if sum(map(len, chunks)) >= size:
                yield b"".join(chunks)
                chunks.clear()
        yield b"".join(chunks)

    def signal(self, number: int) -> None:
        """Sends the agent a signal."""
        self.process.send_signal(number)

    def close_lifeline(self) -> None:
        """Closes the lifeline, as the death of the other process does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None

    def close_output(self) -> None:
        """Closes its output, as the death of the reader does."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stdout = None

    def end(self) -> Ended:
        """Waits for its end; fails if it hangs."""
        out, err = self.process.communicate(timeout=LIMIT)
        log = self._log.read_bytes() if self._log.exists() else b""
        return Ended(self.process.returncode, self._out + out, err, log)

    def alive(self) -> list[int]:
        """Returns the running processes of this run, including the agent and detached processes."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if is_alive(pid) and _is_marked(pid, self._mark.encode())]

    def all_ended(self) -> bool:
        """Waits until no process of this run is running; returns False on a timeout."""
        return until(lambda: not self.alive())


def is_alive(pid: int) -> bool:
    """Returns whether a process is running; a zombie is not."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


class Pod:
    """One pod's scratch directory and interpreter.

    Args:
        directory: an empty directory.
        python: the interpreter of the agent.
    """

    def __init__(self, directory: Path, python: str = sys.executable) -> None:
        self.directory = directory
        self.dir = directory / "agent"
        self.python = python

    def start(
        self,
        *command: str,
        env: dict[str, str] | None = None,
        lifeline: bool = False,
        before: Sequence[str] = (),
        **config: Any,
    ) -> Running:
        """Starts an agent.

        Args:
            command: the command of the pod.
            env: added to the environment.
            lifeline: whether its standard input is a lifeline.
            before: arguments before its command line.
            config: further keys of the config.
        """
        log = self.directory / "termination-log"
        mark = f"STEPSET_TEST_MARK={uuid.uuid4().hex}"
        config = {"version": 1, "group": "node", "dir": str(self.dir), "termination_log": str(log), **config}
        path = self.directory / "config.json"
        path.write_text(json.dumps(config))
        name, value = mark.split("=")
        process = subprocess.Popen(
            [*before, self.python, "-I", "-S", str(AGENT), "run", str(path), *(["--", *command] if command else [])],
            stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_clean(), **(env or {}), name: value, **({"STEPSET_LIFELINE": "1"} if lifeline else {})},
        )
        return Running(process, log, mark)

    def run(self, *command: str, env: dict[str, str] | None = None, **config: Any) -> Ended:
        """Runs an agent to its end."""
        with self.start(*command, env=env, **config) as running:
            return running.end()

    def run_ranks(self, script: str, processes: int = 1, **more: Any) -> Ended:
        """Runs a shell script as this pod's ranks, with the rank in $RANK."""
        with self.start_ranks(script, processes, **more) as running:
            return running.end()

    def start_ranks(self, script: str, processes: int = 1, **more: Any) -> Running:
        """Starts a shell script as this pod's ranks."""
        return self.start("/bin/sh", "-c", script, processes=processes, process_env={"RANK": "{rank}"}, **more)

    def run_launched(self, script: str, ranks: int = 1, **more: Any) -> Ended:
        """Runs a shell script as ranks that a launcher starts."""
        with self.start_launched(script, ranks, **more) as running:
            return running.end()

    def start_launched(self, script: str, ranks: int = 1, **more: Any) -> Running:
        """Starts a launcher with a shell script as its ranks."""
        launched = {"launcher": self.launcher(TORCHRUN, ranks), "program": ["/bin/sh", "-c"], "command_len": 1}
        return self.start("torchrun", script, **{**launched, **more})

    def launcher(self, program: str, ranks: int) -> list[str]:
        """Returns the command line of one of the test launchers."""
        path = self.directory / "launcher.py"
        path.write_text(program)
        return [sys.executable, "-I", "-S", str(path), str(ranks)]


@dataclass(frozen=True)
class Both:
    """One of the two ways in which ranks are started.

    Args:
        pod: the pod of the ranks.
        start: starts a shell script as a number of ranks.
    """

    pod: Pod
    start: Callable[..., Running]

    def run(self, script: str, ranks: int = 1, **more: Any) -> Ended:
        """Runs a shell script as a number of ranks."""
        with self.start(script, ranks, **more) as running:
            return running.end()


def _clean() -> dict[str, str]:
    """Returns this environment without variables that an outer agent or launcher may have set."""
    unwanted = ("STEPSET_", "PMI", "OMPI_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
