"""A killed task stops its training and fails."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.workers import StartWorker
from tests.waiting import STARTS_WITHIN, until

pytestmark = [pytest.mark.airflow, pytest.mark.local]

TRAINS_FOR_EVER = """
    import os, subprocess, sys, time
    child = subprocess.Popen(["sleep", "600"])
    for pid in (os.getpid(), child.pid):
        open(os.path.join(sys.argv[1], str(pid)), "w").close()
    time.sleep(600)
"""
EXITS_WITH_0_ON_SIGTERM = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
    time.sleep(600)
"""


def task(pids: Path, more: str = "") -> str:
    """A training on two nodes whose processes write their ids to `pids`."""
    pids.mkdir(exist_ok=True)
    return (
        'DistributedTrainOperator(task_id="train", backend="local", num_nodes=2, script="train.py",'
        f' framework={{"kind": "torch", "launcher": "none"}}, args=[{str(pids)!r}], {more})'
    )


def alive(pids: Path) -> list[str]:
    return [path.name for path in pids.iterdir() if Path("/proc", path.name).exists()]


@pytest.mark.usefixtures("stepset_home")
def test_sigterm_fails_the_task_even_if_its_training_exits_with_0_and_leaves_no_process(
    write_dag: WriteDag, start_worker: StartWorker, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    path = write_dag(task(pids), EXITS_WITH_0_ON_SIGTERM)
    with start_worker(path) as worker:
        assert until(lambda: len(alive(pids)) == 2, STARTS_WITHIN), "the training did not start"
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait(120)
        out = worker.output
    assert "ended as failed" in out
    assert "was stopped because its task was killed" in out
    assert until(lambda: not alive(pids)), f"still running: {alive(pids)}"


@pytest.mark.usefixtures("stepset_home")
def test_a_worker_killed_with_sigkill_leaves_no_process(
    write_dag: WriteDag, start_worker: StartWorker, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    path = write_dag(task(pids), TRAINS_FOR_EVER)
    with start_worker(path) as worker:
        assert until(lambda: len(alive(pids)) == 4, STARTS_WITHIN), "the training did not start"
        worker.kill()
    assert until(lambda: not alive(pids)), f"still running: {alive(pids)}"


def test_execution_timeout_fails_the_task_and_leaves_no_process(
    write_dag: WriteDag, run_dag: RunDag, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    for seconds in (5, 30, 120):
        timeout = f"execution_timeout=datetime.timedelta(seconds={seconds})"
        run = run_dag(write_dag(task(pids, timeout), TRAINS_FOR_EVER, imports="import datetime"))
        assert run.task_state("train") == "failed"
        assert type(run.error).__name__ == "AirflowTaskTimeout"
        assert until(lambda: not alive(pids)), f"still running: {alive(pids)}"
        if len(list(pids.iterdir())) == 4:
            return
    pytest.fail("the training did not start in two minutes")
