"""The asynchronous Python API on local runs: a cancelled call ends at once and leaves no process behind."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from stepset import aio
from stepset.run_status import FailureKind, Phase
from tests.cli.conftest import STEPSET
from tests.local.conftest import RecordingListener, living

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]

SLEEPS = "import time; print('started', flush=True); time.sleep(90)"
JOB = {"framework": "plain", "script": "train.py", "num_nodes": 1}
SOON = 45.0
"""Seconds in which a cancelled call ends on a busy machine; the run takes longer."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SLEEPS)
    return tmp_path


@pytest.fixture
def elsewhere(directory: Path) -> Iterator[None]:
    """A run in another process, whose rank has started."""
    (directory / "job.yaml").write_text(json.dumps(JOB))
    command = [STEPSET, "run", "job.yaml", "--name", "run"]
    with subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        assert any("started" in line for line in process.stdout)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def seconds(use: Coroutine[Any, Any, None]) -> float:
    """Runs a coroutine; returns the seconds until its event loop has ended, which waits for the loop's threads."""
    began = time.monotonic()
    asyncio.run(use)
    return time.monotonic() - began


def test_a_cancelled_call_ends_its_run(directory: Path) -> None:
    async def use() -> None:
        listener = RecordingListener()
        task = asyncio.create_task(aio.run(JOB, base_dir=directory, run_name="run", listener=listener))
        while not listener.lines and not task.done():
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        status = await aio.status("run")
        assert (status.phase, status.failure and status.failure.kind) == (Phase.FAILED, FailureKind.CANCELLED)

    assert seconds(use()) < SOON
    assert living(directory) == []


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("what", ["wait", "logs"])
def test_a_run_continues_when_a_caller_that_waits_for_it_is_cancelled(what: str) -> None:
    async def lines() -> list[str]:
        async with aclosing(aio.logs("run", follow=True)) as found:
            return [line.text async for line in found]

    async def use() -> None:
        waiting = asyncio.create_task(aio.wait("run") if what == "wait" else lines())
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await aio.status("run")).phase is Phase.RUNNING

    assert seconds(use()) < SOON


@pytest.mark.smoke
@pytest.mark.usefixtures("elsewhere")
def test_wait_returns_after_its_timeout() -> None:
    assert asyncio.run(aio.wait("run", timeout=0.5)).phase is Phase.RUNNING


@pytest.mark.usefixtures("elsewhere")
def test_wait_reads_the_points_of_a_run_only_once(directory: Path) -> None:
    [state] = (directory / "home").rglob("state.json")
    (state.parent / "points.json").write_text("[]")
    program = """
import asyncio, sys
from stepset import aio
reads = []
sys.addaudithook(lambda event, args: reads.append(args[0]) if event == "open" else None)
asyncio.run(aio.wait("run", timeout=2))
print(sum(str(path).endswith("state.json") for path in reads) > 2)
print(sum(str(path).endswith("points.json") for path in reads))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1"]


def test_it_needs_no_package_of_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = {_name(each) for extra in project["optional-dependencies"].values() for each in extra}
    required = {"stepset", *map(_name, project["dependencies"])}
    program = "import sys, stepset.aio; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "anyio" in done.stdout.split()
    assert set(done.stdout.split()) & (optional - required) == set()


def _name(requirement: str) -> str:
    """The package of a requirement such as `anyio>=4.16`."""
    return re.split(r"[^\w-]", requirement)[0]
