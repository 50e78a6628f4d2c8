"""The asynchronous Python API on a real cluster: as the synchronous one, without a waiting thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

import stepset
from stepset import aio
from stepset.backends.base import ClusterOptions
from stepset.errors import RunNotFoundError
from stepset.run_status import Phase
from tests.cluster.runs import RecordingListener, Runs
from tests.waiting import until

pytestmark = pytest.mark.cluster

PRINTS = "for number in range(20): print('line', number, flush=True)"
FAILS = "raise SystemExit('enough')"
SLEEPS = "import time; print('started', flush=True); time.sleep(600)"


@pytest.fixture
def options(runs: Runs) -> ClusterOptions:
    return ClusterOptions(kubeconfig=str(runs.kubeconfig), namespace=runs.namespace)


def test_runs_are_started_and_read_in_one_event_loop(runs: Runs, options: ClusterOptions) -> None:
    listener = RecordingListener()
    expected = [f"line {number}" for number in range(20)]

    async def use() -> None:
        before = set(threading.enumerate())
        first = aio.run(runs.job(PRINTS), "kubernetes", run_name="first", listener=listener, cluster=options)
        second = aio.run(runs.job(PRINTS), "kubernetes", run_name="second", cluster=options)
        statuses = await asyncio.gather(first, second)
        assert [status.phase for status in statuses] == [Phase.SUCCEEDED] * 2
        assert listener.texts("rank 0") == expected
        assert (await aio.status("first", "kubernetes", cluster=options)).phase is Phase.SUCCEEDED
        assert (await aio.wait("second", "kubernetes", cluster=options)).name == "second"
        for follow in (False, True):
            lines = [line.text async for line in aio.logs("first", "kubernetes", follow=follow, cluster=options)]
            assert lines == expected
        with pytest.raises(RunNotFoundError):
            await aio.status("nothing", "kubernetes", cluster=options)
        new = set(threading.enumerate()) - before
        assert [each for each in new if not each.name.startswith(("asyncio_", "AnyIO worker"))] == []

    asyncio.run(use())


def test_the_listener_receives_only_the_lines_of_the_sources(runs: Runs, options: ClusterOptions) -> None:
    listener = RecordingListener()
    job, rank_1 = runs.job(PRINTS, procs_per_node=2), replace(options, sources=frozenset({"rank 1"}))
    asyncio.run(aio.run(job, "kubernetes", run_name="run", listener=listener, cluster=rank_1))
    assert listener.texts("rank 1") == [f"line {number}" for number in range(20)]
    assert listener.texts("rank 0") == []


def test_a_run_that_fails_raises(runs: Runs, options: ClusterOptions) -> None:
    with pytest.raises(stepset.TrainingFailedError, match="exited with code 1"):
        asyncio.run(aio.run(runs.job(FAILS), "kubernetes", run_name="run", cluster=options))


def test_cancelling_the_caller_ends_its_run(runs: Runs, options: ClusterOptions) -> None:
    listener = RecordingListener()

    async def cancelled() -> None:
        job = runs.job(SLEEPS)
        running = asyncio.create_task(aio.run(job, "kubernetes", run_name="run", listener=listener, cluster=options))
        while not listener.lines:
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert until(lambda: not runs.left(), 120)


def test_a_log_is_followed_while_it_is_printed_until_the_reader_stops(runs: Runs, options: ClusterOptions) -> None:
    async def first_line() -> str:
        running = asyncio.create_task(aio.run(runs.job(SLEEPS), "kubernetes", run_name="run", cluster=options))
        while not runs.left():
            await asyncio.sleep(0.2)
        async with aclosing(aio.logs("run", "kubernetes", follow=True, cluster=options)) as lines:
            first = (await anext(lines)).text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return first

    assert asyncio.run(first_line()) == "started"


def test_local_runs_run_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path))
    (tmp_path / "train.py").write_text(PRINTS)
    job = {"framework": "plain", "script": "train.py", "num_nodes": 1}

    async def use() -> None:
        status = await aio.run(job, base_dir=tmp_path, run_name="here")
        assert status.phase is Phase.SUCCEEDED
        assert (await aio.status("here")).phase is Phase.SUCCEEDED
        assert (await aio.wait("here")).phase is Phase.SUCCEEDED
        assert [line.text async for line in aio.logs("here")] == [f"line {number}" for number in range(20)]

    asyncio.run(use())
