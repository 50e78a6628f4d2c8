"""The installed `stepset`, started as a user starts it: in a terminal of some width, or with a pipe."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

STEPSET = Path(sys.executable).parent / "stepset"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_ROWS = 40
_LIMIT = 300
"""Seconds within which a command must end, on a busy machine."""


@dataclass(frozen=True)
class Shown:
    """What a command has printed, and its exit code.

    Args:
        out: stdout; in a terminal also stderr.
        err: stderr; empty in a terminal.
    """

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """What a user reads: both streams, without control sequences."""
        return _CONTROL.sub("", self.out + self.err).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The lines that stay in the terminal: of a line that is drawn again, its last state."""
        return [line.rpartition("\r")[2] for line in self.text.removesuffix("\n").split("\n")]


@dataclass(frozen=True)
class Shell:
    """A shell's directory and variables.

    Args:
        columns: the width of the terminal; None: no terminal, stdout and stderr are pipes.
        home: the home directory of the user.
        variables: further variables.
        before: words before each command, such as a program that starts it.
    """

    directory: Path
    home: Path
    columns: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()

    def with_variables(self, **variables: str) -> Shell:
        """Returns a shell with further variables."""
        return replace(self, variables={**self.variables, **variables})

    def __call__(self, *words: str) -> Shown:
        """Runs `stepset WORDS` to its end."""
        command, env = [*self.before, str(STEPSET), *words], self._environment()
        if self.columns is None:
            done = subprocess.run(command, cwd=self.directory, env=env, capture_output=True, timeout=_LIMIT)
            return Shown(done.returncode, done.stdout.decode(), done.stderr.decode())
        return in_terminal(command, self.directory, env, self.columns)

    def _environment(self) -> dict[str, str]:
        hidden = ("STEPSET_", "NO_COLOR", "COLUMNS", "LINES", "XDG_STATE_HOME")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return {**kept, "HOME": str(self.home), "TERM": "xterm", **self.variables}


def in_terminal(
    command: Sequence[str | Path], directory: Path, env: Mapping[str, str], columns: int, typed: bytes = b""
) -> Shown:
    """Runs a command to its end in a terminal of some width, in which a user types."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    seen = bytearray()
    with subprocess.Popen(command, cwd=directory, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, typed)
        while data := _read(ours):
            seen += data
        code = process.wait(_LIMIT)
    os.close(ours)
    return Shown(code, seen.decode(), "")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports EIO when the last writer has closed it
        return b""
