"""A killed task stops its training and fails."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepset
from stepset.watch.present.sentences import duration
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.workers import StartWorker
from tests.packages import NAME, endless_build, unfinished
from tests.waiting import STARTS_WITHIN, until

pytestmark = [pytest.mark.airflow, pytest.mark.local]

TRAINS_FOR_EVER = """
    import os, subprocess, sys, time
    child = subprocess.Popen(["sleep", "600"])
    for pid in (os.getpid(), child.pid):
        open(os.path.join(sys.argv[1], str(pid)), "w").close()
    time.sleep(600)
"""
IGNORES_SIGTERM = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
    time.sleep(600)
"""
TRAINS_ONCE = """
    import os, sys, time
    open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
    time.sleep(600 if os.environ["STEPSET_ATTEMPT"] == "0" else 0)
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


@pytest.fixture
def building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The installation of the package NAME never ends."""
    with endless_build(tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


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
    assert "was cancelled after" in out and "to save" not in out
    assert until(lambda: not alive(pids)), f"still running: {alive(pids)}"


@pytest.mark.usefixtures("stepset_home")
def test_a_run_whose_task_airflow_kills_before_its_ranks_have_exited_is_cancelled_and_its_duration_includes_the_stop(
    write_dag: WriteDag, start_worker: StartWorker, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    path = write_dag(task(pids), IGNORES_SIGTERM)
    with start_worker(path) as worker:
        assert until(lambda: len(alive(pids)) == 2, STARTS_WITHIN), "the training did not start"
        begun = time.time()
        worker.terminate()
        assert until(lambda: "the run was asked to stop: its task was killed" in worker.output, 30), worker.output
        assert until(lambda: time.time() - begun > 5), "Airflow sends SIGKILL 5 s after SIGTERM"
        worker.kill()
        worker.wait(120)
    (run,) = stepset.list_runs()
    failure, finished = run.failure, run.finished
    assert failure is not None and finished is not None
    assert (run.phase, failure.kind) == (stepset.Phase.LOST, stepset.FailureKind.CANCELLED)
    assert failure.message.startswith("the run was cancelled: its task was killed, and its ranks received SIGTERM; ")
    assert failure.message.endswith("was asked to stop, and was killed before its ranks had exited.")
    assert finished - begun > 1, "the ranks were silent, but the process of the run existed"
    assert until(lambda: not alive(pids)), f"still running: {alive(pids)}"


@pytest.mark.usefixtures("stepset_home")
def test_the_try_after_a_killed_try_states_why_the_earlier_run_was_stopped(
    write_dag: WriteDag, start_worker: StartWorker, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    path = write_dag(task(pids, "retries=1, retry_delay=0.1"), TRAINS_ONCE)
    with start_worker(path) as worker:
        assert until(lambda: len(alive(pids)) == 2, STARTS_WITHIN), "the training did not start"
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait(120)
        out = worker.output
    assert "ended as success" in out
    reason = (
        r"this try starts another run, because run \S+ was cancelled after .* s: its task was killed, and its ranks"
    )
    assert re.search(reason, out), out


@pytest.mark.usefixtures("stepset_home", "building")
def test_sigterm_while_requirements_are_installed_fails_the_task_at_once(
    write_dag: WriteDag, start_worker: StartWorker, tmp_path: Path
) -> None:
    path = write_dag(task(tmp_path / "pids", f"requirements=[{NAME!r}]"), TRAINS_FOR_EVER)
    with start_worker(path) as worker:
        assert until((tmp_path / "building").exists, STARTS_WITHIN), "the installation did not start"
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait(120)
        out = worker.output
    assert "ended as failed" in out
    assert "the run was stopped because its task was killed" in out
    assert unfinished(tmp_path) == []
    assert not list((tmp_path / "pids").iterdir())


@pytest.mark.usefixtures("building")
def test_execution_timeout_while_requirements_are_installed_is_named_as_the_reason(
    write_dag: WriteDag, run_dag: RunDag, tmp_path: Path
) -> None:
    more = f"requirements=[{NAME!r}], execution_timeout=datetime.timedelta(seconds=10)"
    run = run_dag(write_dag(task(tmp_path / "pids", more), TRAINS_FOR_EVER, imports="import datetime"))
    assert type(run.error).__name__ == "AirflowTaskTimeout", run.explained()
    assert run.lines.count("execution_timeout (10 s) expired before the run was started") == 1, run.explained()
    assert not list((tmp_path / "pids").iterdir())
    assert not stepset.list_runs()


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


def test_execution_timeout_fails_the_task_leaves_no_process_and_is_named_as_the_reason(
    write_dag: WriteDag, run_dag: RunDag, tmp_path: Path, stepset_home: Path
) -> None:
    pids = tmp_path / "pids"
    for seconds in (5, 30, 120):
        timeout = (
            f"retries=1, retry_delay=0.1, execution_timeout=datetime.timedelta(seconds={seconds}),"
            " termination_grace_period=4"
        )
        run = run_dag(write_dag(task(pids, timeout), TRAINS_FOR_EVER, imports="import datetime"))
        assert run.task_state("train") == "failed"
        assert type(run.error).__name__ == "AirflowTaskTimeout"
        assert until(lambda: not alive(pids)), f"still running: {alive(pids)}"
        if len(list(pids.iterdir())) >= 4:
            found = max(stepset.list_runs(), key=lambda each: each.created)
            why = f"execution_timeout ({duration(seconds)}) expired; the ranks could use up to 2 s to save."
            assert [line for line in run.lines if line.startswith("run ") and line.endswith(f": {why}")], (
                run.explained()
            )
            assert str(run.error).endswith(f", run {found.name}")
            failure = stepset.status(found.name).failure
            assert failure is not None and failure.message == f"the run was cancelled: {why}"
            reasons = [line for line in run.lines if line.startswith("this try starts another run, because run ")]
            assert [line for line in reasons if line.endswith(f": {why}")], run.explained()
            return
    pytest.fail("the training did not start in two minutes")
