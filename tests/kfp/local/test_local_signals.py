"""Signals to a local step: they end the step and its ranks, also if many arrive at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import NAME, endless_build, unfinished
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.local

NOISY = """
import os, pathlib, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
pathlib.Path(f"up-{os.environ['RANK']}").touch()
while True:
    print("line " + "x" * 80)
"""

STEP = """
import threading
from pathlib import Path
from stepset.spec import parse_job
from stepset_kfp.step.step_job import StepInputs, StepJob
from stepset_kfp.step.step_log import StepLog
from stepset_kfp.step.train import run

job = parse_job({"name": "job", "framework": {"kind": "torch", "launcher": "none"}, "script": "train.py",
                 "num_nodes": 2, "procs_per_node": 2})
threads = threading.enumerate()
try:
    run(StepJob(lambda: StepInputs(job, Path.cwd())), {"backend": "local", "log_ranks": "all"}, StepLog())
finally:
    print("threads left:", [t.name for t in threading.enumerate() if t not in threads], flush=True)
"""

COMMAND = """
import os, pathlib, signal, sys, time

seen = []

def note(number, frame):
    seen.append(number)
    pathlib.Path("seen").write_text(" ".join(str(int(n)) for n in seen))
    if number == signal.SIGTERM:
        sys.exit(5)

for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
pathlib.Path("seen").touch()
while True:
    time.sleep(600)
"""


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGINT), (signal.SIGTERM,) * 200])
def test_any_number_of_signals_ends_the_step_and_its_ranks(
    tmp_path: Path, home: Path, numbers: tuple[int, ...]
) -> None:
    (tmp_path / "train.py").write_text(NOISY)
    command = [sys.executable, "-c", STEP]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT) as step,
    ):
        try:
            assert until(lambda: len(list(tmp_path.glob("up-*"))) == 4), "the ranks started"
            for number in numbers:
                step.send_signal(number)
            code = step.wait(LIMIT)
        finally:
            step.kill()
    lines = (tmp_path / "log").read_text().splitlines()
    assert code in {128 + number for number in numbers}
    assert any("was stopped because its step received signal" in line for line in lines)
    assert "threads left: []" in lines


def test_a_signal_while_requirements_are_installed_ends_the_step(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(NOISY)
    command = [sys.executable, "-c", STEP.replace('"num_nodes"', f'"requirements": [{NAME!r}], "num_nodes"')]
    with endless_build(tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as step:
            try:
                assert until((tmp_path / "building").exists), "the installation did not start"
                step.send_signal(signal.SIGTERM)
                out, _ = step.communicate(timeout=LIMIT)
            finally:
                step.kill()
    assert step.returncode == 128 + signal.SIGTERM
    assert "stepset: the run was stopped because its step received signal 15" in out
    assert unfinished(tmp_path) == []


def test_every_signal_to_a_components_rank_reaches_its_command(tmp_path: Path) -> None:
    run = f"import sys; from stepset_kfp.ranks.main import run; sys.exit(run([sys.executable, '-c', {COMMAND!r}]))"
    with subprocess.Popen([sys.executable, "-c", run], cwd=tmp_path) as rank:
        try:
            assert until((tmp_path / "seen").exists)
            for number in (signal.SIGUSR1, signal.SIGINT):
                os.kill(rank.pid, number)
                assert until(lambda number=number: str(int(number)) in (tmp_path / "seen").read_text().split())
            os.kill(rank.pid, signal.SIGTERM)
            assert rank.wait(LIMIT) == 5
        finally:
            rank.kill()
    assert (tmp_path / "seen").read_text().split() == ["10", "2", "15"]


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", 128 + 9), ("true", 0)])
def test_a_components_rank_returns_the_exit_code_of_its_command(command: str, code: int) -> None:
    before = signal.getsignal(signal.SIGTERM), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    from stepset_kfp.ranks.main import run

    assert run(["sh", "-c", command]) == code
    assert (signal.getsignal(signal.SIGTERM), len(os.listdir("/proc/self/fd"))) == before  # noqa: PTH208
