"""A local run that is stopped while its requirements are installed ends at once, and nothing of it remains."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepset import aio
from tests.cli.conftest import STEPSET
from tests.local.conftest import eventually_none, living, wait_for
from tests.packages import NAME, endless_build, unfinished
from tests.waiting import LIMIT

pytestmark = pytest.mark.local

JOB = {"framework": "plain", "script": "train.py", "requirements": [NAME]}
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a script; its requirement is built without end."""
    (tmp_path / "train.py").write_text("raise SystemExit('trained')")
    with endless_build(tmp_path) as variables:
        for name, value in {**variables, "STEPSET_HOME": str(tmp_path / "home")}.items():
            monkeypatch.setenv(name, value)
        yield tmp_path


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    """Starts `stepset run` in a session of its own, and waits until the requirement is being built."""
    words = ["run", "train.py", "--framework", "plain", "--set", f'requirements=["{NAME}"]', *options]
    process = subprocess.Popen(
        [STEPSET, *words], cwd=directory, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    wait_for(directory / "building")
    return process


def check_nothing_remains(directory: Path) -> None:
    assert eventually_none(lambda: living(directory)) == []
    assert unfinished(directory) == []
    assert not list((directory / "home").glob("runs/*"))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_the_run_as_cancelled(directory: Path, number: signal.Signals) -> None:
    process = start(directory)
    process.send_signal(number)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, out
    assert out.endswith("stepset: the run was stopped while its requirements were installed; no rank has started\n")
    check_nothing_remains(directory)


@pytest.mark.parametrize("options", [(), ("--detach",)], ids=["in the terminal", "detached"])
def test_a_command_that_is_killed_ends_the_installation(directory: Path, options: tuple[str, ...]) -> None:
    process = start(directory, *options)
    process.kill()
    process.communicate(timeout=LIMIT)
    check_nothing_remains(directory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_to_a_program_of_the_python_api_ends_the_installation(directory: Path, number: signal.Signals) -> None:
    words = [sys.executable, "-c", f"import stepset; stepset.run({JOB})"]
    process = subprocess.Popen(words, cwd=directory, start_new_session=True, stderr=subprocess.PIPE, text=True)
    wait_for(directory / "building")
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == -number, err
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    check_nothing_remains(directory)


def test_a_cancelled_asynchronous_call_ends_the_installation(directory: Path) -> None:
    async def use() -> None:
        task = asyncio.create_task(aio.run(JOB, base_dir=directory))
        await asyncio.to_thread(wait_for, directory / "building")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    check_nothing_remains(directory)


def test_an_installation_that_another_process_ends_is_reported(directory: Path) -> None:
    process = start(directory)
    (pid,) = (each.partition(":")[0] for each in living(directory) if "install.py" in each)
    os.kill(int(pid), signal.SIGTERM)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, out
    assert "requirements: the installation was stopped by another process" in out
    check_nothing_remains(directory)
