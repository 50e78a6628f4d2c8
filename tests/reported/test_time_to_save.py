"""A stopped rank has the whole grace period of its job to save, whatever limits its launcher has.

torchrun kills its ranks 30 s after SIGTERM. DeepSpeed's launcher ends before its ranks.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.run_status import FailureKind
from stepset.sources import read_sources
from stepset.spec import parse_job
from tests.waiting import until

SAVES = """
import os, signal, sys, time
from pathlib import Path

def save(*_):
    if rank == "1":
        time.sleep(float(os.environ["SAVING"]))
    Path(f"saved-{rank}").touch()
    sys.exit(1)

rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
signal.signal(signal.SIGTERM, save)
Path(f"up-{rank}").touch()
while True:
    time.sleep(0.1)
"""
"""Rank 0 exits with code 1 at once, and rank 1 saves."""

CHILD_SAVES = """
import os, signal, subprocess, sys, time
from pathlib import Path

def save(*_):
    shell = f"sleep {os.environ['SAVING']}; touch saved-{rank}"
    subprocess.Popen(["sh", "-c", shell], stdin=-3, stdout=-3, stderr=-3)
    os._exit(0)

rank = os.environ["RANK"]
signal.signal(signal.SIGTERM, save)
Path(f"up-{rank}").touch()
while True:
    time.sleep(0.1)
"""

LAUNCHERS: dict[str, dict[str, Any]] = {
    "none": {"kind": "torch", "launcher": "none"},
    "torchrun": {"kind": "torch"},
    "deepspeed": {"kind": "deepspeed", "launcher": "deepspeed"},
}


class Case:
    """A local run of two ranks, whose home and scripts are in one directory."""

    def __init__(self, directory: Path, script: str, *, saving: float, period: int, **fields: Any) -> None:
        self.directory = directory
        (directory / "train.py").write_text(script)
        job = {"name": "job", "script": "train.py", "procs_per_node": 2, "termination_grace_period": period, **fields}
        parsed = parse_job({**job, "env": {"SAVING": str(saving)}})
        request = RunRequest(parsed, read_sources(parsed, directory))
        self.handle = LocalBackend(directory / "home").start(request)

    def wait_until_up(self) -> None:
        assert until(lambda: all((self.directory / f"up-{rank}").exists() for rank in (0, 1)), 60)

    def saved(self) -> list[bool]:
        return [(self.directory / f"saved-{rank}").exists() for rank in (0, 1)]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STEPSET_")]:
        monkeypatch.delenv(name)


@pytest.mark.local
@pytest.mark.frameworks
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_a_rank_saves_for_longer_than_its_launcher_would_wait(tmp_path: Path, launcher: str) -> None:
    case = Case(tmp_path, SAVES, saving=40, period=60, framework=LAUNCHERS[launcher])
    case.wait_until_up()
    case.handle.cancel()
    status = case.handle.wait()
    assert case.saved() == [True, True]
    assert status.failure is not None
    assert status.failure.kind is FailureKind.CANCELLED
    assert status.failure.message == "the run was cancelled: the ranks could use up to 50 s to save."


@pytest.mark.local
@pytest.mark.frameworks
@pytest.mark.parametrize("script", [SAVES, CHILD_SAVES], ids=["rank", "child"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_or_its_child_saves_after_another_rank_has_exited(tmp_path: Path, launcher: str, script: str) -> None:
    case = Case(tmp_path, script, saving=4, period=30, framework=LAUNCHERS[launcher])
    case.wait_until_up()
    case.handle.cancel()
    case.handle.wait()
    assert case.saved() == [True, True]


@pytest.mark.local
@pytest.mark.frameworks
def test_at_a_deadline_the_ranks_save_too(tmp_path: Path) -> None:
    case = Case(tmp_path, SAVES, saving=4, period=30, framework=LAUNCHERS["torchrun"], deadline="20s")
    case.wait_until_up()
    status = case.handle.wait()
    assert status.failure is not None
    assert status.failure.kind is FailureKind.DEADLINE_EXCEEDED
    assert case.saved() == [True, True]


@pytest.mark.local
@pytest.mark.frameworks
def test_when_a_node_fails_the_ranks_of_the_other_nodes_save(tmp_path: Path) -> None:
    fails = SAVES.replace("while True:", "if rank == '2':\n    sys.exit(3)\nwhile True:")
    case = Case(tmp_path, fails, saving=4, period=30, framework=LAUNCHERS["torchrun"], num_nodes=2)
    status = case.handle.wait()
    assert status.failure is not None
    assert status.failure.exit_code == 3
    assert case.saved() == [True, True]


@pytest.mark.local
@pytest.mark.frameworks
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_that_ignores_the_signal_is_killed_at_the_end_of_its_time(tmp_path: Path, launcher: str) -> None:
    ignores = SAVES.replace("signal.SIGTERM, save", "signal.SIGTERM, signal.SIG_IGN")
    case = Case(tmp_path, ignores, saving=0, period=6, framework=LAUNCHERS[launcher])
    case.wait_until_up()
    case.handle.cancel()
    began = time.monotonic()
    status = case.handle.wait()
    assert 3 <= time.monotonic() - began < 20
    assert {row.signal for row in status.ranks} == {signal.SIGKILL}


@pytest.mark.local
@pytest.mark.frameworks
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_second_request_kills_ranks_that_save(tmp_path: Path, launcher: str) -> None:
    case = Case(tmp_path, SAVES, saving=300, period=600, framework=LAUNCHERS[launcher])
    case.wait_until_up()
    case.handle.cancel()
    assert until(lambda: case.saved()[0], 20)
    case.handle.cancel()
    began = time.monotonic()
    status = case.handle.wait()
    assert time.monotonic() - began < 20
    assert case.saved() == [True, False]
    assert status.failure is not None
    assert status.failure.message == "the run was cancelled: its ranks were killed."
