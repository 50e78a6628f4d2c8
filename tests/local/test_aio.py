"""The asynchronous Python API on local runs: a caller that is cancelled leaves at once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from stepset import aio
from stepset.watch.state import FailureKind, Phase
from tests.cli.conftest import STEPSET
from tests.local.conftest import Listening, living

pytestmark = pytest.mark.local

SLEEPS = "import time; print('begun', flush=True); time.sleep(90)"
JOB = {"framework": "plain", "script": "train.py", "num_nodes": 1}
SOON = 45.0
"""Seconds within which a caller leaves, on a busy machine; the run takes longer."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SLEEPS)
    return tmp_path


@pytest.fixture
def elsewhere(directory: Path) -> Iterator[None]:
    """A run that another process follows, and whose rank has begun."""
    (directory / "job.yaml").write_text(json.dumps(JOB))
    command = [STEPSET, "run", "job.yaml", "--name", "run"]
    with subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        assert any("begun" in line for line in process.stdout)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def seconds(use: Coroutine[Any, Any, None]) -> float:
    """How long it takes, with the end of its event loop, which waits for its threads."""
    began = time.monotonic()
    asyncio.run(use)
    return time.monotonic() - began


def test_a_caller_that_is_cancelled_ends_its_run(directory: Path) -> None:
    async def use() -> None:
        listening = Listening()
        task = asyncio.create_task(aio.run(JOB, base_dir=directory, name="run", listener=listening))
        while not listening.lines and not task.done():
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
def test_who_waits_for_a_run_may_be_cancelled_and_the_run_goes_on(what: str) -> None:
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
def test_a_wait_may_have_a_limit() -> None:
    assert asyncio.run(aio.wait("run", timeout=0.5)).phase is Phase.RUNNING
