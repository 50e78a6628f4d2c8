"""Directories of local runs belong to their owner, and one bad directory affects no other run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import STEPSET

pytestmark = pytest.mark.local


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with one run, made under umask 000 in a directory that did not exist."""
    home = tmp_path / "above" / "home"
    stepset(home, "run", "--command", "--", sys.executable, "-c", "print(1)", umask=0)
    yield home


def stepset(home: Path, *words: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    return subprocess.run([STEPSET, *words], env=env, text=True, capture_output=True, timeout=60, umask=umask)


def modes(path: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mode & 0o777 for each in (path, path / "runs", *(path / "runs").iterdir())}


def test_directories_are_their_owners_only_whatever_the_umask(home: Path) -> None:
    (home / "runs").chmod(0o777)
    stepset(home, "run", "--command", "--", sys.executable, "-c", "print(1)", umask=0)
    assert set(modes(home).values()) == {0o700}


@pytest.mark.parametrize(
    "kind", ["fifo", "device", "nested", "huge number", "wrong type", "time", "link", "directory", "path", "name"]
)
def test_a_bad_state_hides_no_other_run_and_never_blocks(home: Path, kind: str) -> None:
    (only,) = (home / "runs").iterdir()
    bad = home / "runs" / "bad"
    bad.mkdir()
    state, good = bad / "state.json", only / "state.json"
    data = json.loads(good.read_text())
    texts = {
        "nested": "[" * 100_000,
        "huge number": json.dumps({**data, "attempt": 0}).replace('"attempt": 0', f'"attempt": {"9" * 5000}'),
        "wrong type": json.dumps({**data, "ranks": 7}),
        "time": json.dumps({**data, "created": 1e308}),
        "path": json.dumps({**data, "name": "../../outside"}),
        "name": json.dumps({**data, "job": "other", "created": 4e9}),  # the name of the good run
    }
    if kind == "fifo":
        os.mkfifo(state)
    elif kind == "device":
        state.symlink_to("/dev/zero")
    elif kind == "link":
        state.symlink_to(good)
    elif kind == "directory":
        state.mkdir()
    else:
        state.write_text(texts[kind])
    listed = stepset(home, "list", "-o", "json")
    assert (listed.returncode, [run["name"] for run in json.loads(listed.stdout)["items"]]) == (0, [only.name])
    assert len(listed.stderr.splitlines()) == 1
    assert str(state) in listed.stderr
    status = stepset(home, "status", "bad")
    assert status.returncode == 3
    assert "Traceback" not in status.stderr and len(status.stderr.splitlines()) == 1
