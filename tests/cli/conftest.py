"""The command line, called in this process or as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepset.cli import main

STEPSET = Path(sys.executable).parent / "stepset"


@dataclass(frozen=True)
class CommandResult:
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return self.err.splitlines()


Cli = Callable[..., CommandResult]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`cli("run", "train.py")`: the command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    for name in ("STEPSET_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*argv: str) -> CommandResult:
        capfd.readouterr()
        code = main(argv)
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return CommandResult(code, out, err)

    return call


@pytest.fixture
def program(tmp_path: Path) -> Cli:
    """`program("run", "train.py")`: the installed `stepset`, in an empty directory."""

    def call(*argv: str, env: dict[str, str] | None = None) -> CommandResult:
        full = {**os.environ, "STEPSET_HOME": str(tmp_path / "home"), **(env or {})}
        done = subprocess.run([STEPSET, *argv], cwd=tmp_path, env=full, capture_output=True, timeout=120)
        return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call
