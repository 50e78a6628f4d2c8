"""Fixtures for tests of real local runs: small scripts, a separate home, and a check for remaining processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.backends.local.launch import LocalHandle
from stepset.run_status import LogLine, RunStatus
from stepset.sources import read_sources
from stepset.spec import parse_job
from tests.waiting import until

GRACE = 1.0


class RecordingListener:
    """Records all lines and states."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.statuses: list[RunStatus] = []

    def on_line(self, line: LogLine) -> None:
        self.lines.append(line)

    def on_status(self, status: RunStatus) -> None:
        self.statuses.append(status)


class Local:
    """A local backend with a separate home, and a directory for scripts.

    Args:
        directory: the directory of both.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.backend = LocalBackend(self.home, grace=GRACE)
        self.listener = RecordingListener()

    def request(self, text: str, /, *, name: str | None = None, attempt: int = 0, **fields: Any) -> RunRequest:
        """Returns a request to run a script in every rank."""
        (new := self.directory / "train.py.new").write_text(dedent(text))
        new.replace(self.directory / "train.py")  # atomically: ranks of an earlier run may be reading it
        job = parse_job({"name": "job", "framework": "plain", "script": "train.py", **fields})
        return RunRequest(job, read_sources(job, self.directory), name=name, attempt=attempt)

    def start(self, text: str, /, **fields: Any) -> LocalHandle:
        return self.backend.start(self.request(text, **fields), self.listener)

    def run(self, text: str, /, **fields: Any) -> RunStatus:
        """Runs a script to the end; checks that no process of the run remains."""
        status = self.start(text, **fields).wait()
        assert living(self.directory) == []
        return status

    def texts(self, source: str) -> list[str]:
        """The lines of one source that the listener received."""
        return [line.text for line in self.listener.lines if line.source == source]

    def path(self, *parts: str) -> Path:
        return self.directory.joinpath(*parts)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    for name in [n for n in os.environ if n.startswith("STEPSET_")]:
        monkeypatch.delenv(name)
    yield Local(tmp_path)
    assert eventually_none(lambda: living(tmp_path)) == [], "processes outlived their run"


def living(directory: Path) -> list[str]:
    """The running processes that have a directory in their command line or environment, without zombies."""
    wanted, found = os.fsencode(directory), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(os.getpid()):
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if wanted in command or wanted in (entry / "environ").read_bytes():
                found.append(f"{entry.name}: {command.decode(errors='replace')}")
        except OSError:  # it has just ended
            continue
    return found


def eventually_none(find: Callable[[], list[str]]) -> list[str]:
    """Waits until `find` returns nothing; returns its last result."""
    until(lambda: not find())
    return find()


def wait_for(path: Path) -> str:
    """Waits for a file that a rank writes; returns its content."""
    assert until(lambda: path.exists() and path.read_text() != ""), f"{path} was not written"
    return path.read_text()
