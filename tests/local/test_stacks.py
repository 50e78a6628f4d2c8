"""`stepset stacks` on this machine: a rank that sleeps is found beside the ranks that wait, and both continue."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import stepset
from stepset.backends.local import LocalBackend
from tests.cli.conftest import Cli, program

__all__ = ["program"]

SCRIPT = """
import os, pathlib, time

class Tokens:
    def __getitem__(self, index):
        while not pathlib.Path("end").exists():
            time.sleep(0.05)

def wait():
    while not pathlib.Path("end").exists():
        time.sleep(0.05)

rank = os.environ["STEPSET_NODE_RANK"]
pathlib.Path(f"started-{rank}").touch()
Tokens()[0] if rank == "2" else wait()
"""

pytestmark = pytest.mark.local


def _all_run(status: stepset.RunStatus, directory: Path, ranks: int) -> bool:
    """Returns whether all ranks are in their last function, and the state of the run says that they run."""
    running = [row for row in status.ranks if row.state == "Running"]
    return len(running) == len([*directory.glob("started-*")]) == ranks


def test_the_rank_that_sleeps_is_shown_apart_from_the_ranks_that_wait(program: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    done = program("run", "train.py", "--framework", "plain", "--nodes", "4", "-d")
    assert done.code == 0, done
    deadline = time.monotonic() + 60
    while not _all_run(LocalBackend(tmp_path / "home").status("train"), tmp_path, 4) and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        shown = program("stacks", "train")
        assert shown.code == 0, shown
        others, sleeper = shown.out.split("\n\n")[1:]
        assert others.startswith("ranks 0, 1, 3 (3): ")
        assert "    wait      train.py:" in others
        assert sleeper.startswith("rank 2 (1): ")
        assert "    __getitem__  train.py:" in sleeper
        one = json.loads(program("stacks", "train", "--ranks", "2", "-o", "json").out)
        assert ([rank["rank"] for rank in one["ranks"]], one["problems"]) == ([2], [])
        page = program("stacks", "train", "-o", "html").out
        assert "<b>__getitem__</b>" in page
        assert "2 | 0, 1, 3" in page
        wrong = program("stacks", "train", "--ranks", "9")
        assert (wrong.code, wrong.out) == (2, "")
        assert "--ranks: train-" in wrong.err
    finally:
        (tmp_path / "end").touch()
        ended = program("wait", "train")
    assert ended.code == 0, ended
    over = program("stacks", "train")
    assert over.code == 2
    assert "is over: Succeeded; only running ranks have stacks" in over.err


def test_the_python_api_shows_the_stacks_as_text_and_as_html(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    run = stepset.submit("train.py", framework="plain", num_nodes=1)
    try:
        deadline = time.monotonic() + 60
        while not _all_run(run.status(), tmp_path, 1) and time.monotonic() < deadline:
            time.sleep(0.1)
        found = stepset.stacks(run)
        assert found.ranks[0].processes[0].frames[0].function == "wait"
        assert repr(found).startswith(f"run {run.name}: 1 rank, 1 stack\n")
        assert "<b>wait</b>" in found._repr_html_()
        assert found.page().startswith("<!DOCTYPE html>")
        assert run.stacks(ranks=0).ranks[0].rank == 0
    finally:
        (tmp_path / "end").touch()
        run.wait()
