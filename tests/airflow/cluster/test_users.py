"""A user marks a task failed, or clears it, while it waits in a worker: its state changes, then its process is told.

The same while it waits in the triggerer is in tests/airflow/stack, because nobody tells a trigger in `dag.test()`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import WriteDag
from tests.airflow.harness import last_run, run_again, set_state
from tests.airflow.held import Held
from tests.airflow.stack.created import created
from tests.waiting import STARTS_WITHIN, until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

SLEEPS_ONCE = """
    import json, os, time
    print("attempt", os.environ["STEPSET_ATTEMPT"], flush=True)
    if os.environ["STEPSET_RUN"].endswith("-1"):
        time.sleep(600)
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps({"run": os.environ["STEPSET_RUN"]}))
"""


def act(tasks: Tasks, path: Path, state: str) -> str:
    """What a user does once the run's pod runs; what the worker has printed by its end."""
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as worker:
        try:
            assert until(lambda: any(p["status"].get("phase") == "Running" for p in tasks.runs.pods()), STARTS_WITHIN)
            set_state(path, state)
            os.kill(worker.pid, signal.SIGTERM)  # by its supervisor, which the server tells of the state
            return worker.communicate(timeout=STARTS_WITHIN)[0].decode()
        finally:
            worker.kill()


@pytest.mark.usefixtures("airflow_db", "stepset_home")
@pytest.mark.parametrize(
    ("action", "left"), [pytest.param("delete", 0, id="deleted"), pytest.param("suspend", 1, id="suspended")]
)
def test_a_task_that_a_user_marks_failed_ends_its_run(
    write_dag: WriteDag, tasks: Tasks, tmp_path: Path, action: str, left: int
) -> None:
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        out = act(tasks, write_dag(tasks.train(on_kill_action=action), SLEEPS_ONCE), "failed")
        assert "was stopped because its task was killed" in out, out[-3000:]
        assert "ended as failed" in out
        assert until(lambda: len(tasks.workloads()) == left)
        assert until(lambda: not tasks.runs.pods())
        assert [each["spec"].get("suspend") for each in tasks.workloads()] == [True] * left
        assert len(made.names()) == 1
    if not left:
        tasks.runs.wait_nothing_left()


@pytest.mark.usefixtures("airflow_db", "stepset_home")
@pytest.mark.parametrize(
    "way",
    [pytest.param({"deferrable": True}, id="to a trigger"), pytest.param({"wait_for_completion": False}, id="at all")],
)
def test_a_run_is_not_left_by_a_task_that_was_ended_before_its_worker_heard_of_it(
    write_dag: WriteDag, tasks: Tasks, tmp_path: Path, way: dict[str, bool]
) -> None:
    held = Held(tmp_path)
    path = write_dag(held.task(tasks.train(**way)), SLEEPS_ONCE, imports=held.imports)
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as worker:
        try:
            assert until(lambda: held.begun, STARTS_WITHIN)
            set_state(path, "failed")
            held.let_go()
            out = worker.communicate(timeout=STARTS_WITHIN)[0].decode()
        finally:
            worker.kill()
    assert "was stopped because its task was killed" in out, out[-3000:]
    tasks.runs.wait_nothing_left()


@pytest.mark.usefixtures("airflow_db", "stepset_home")
def test_a_task_that_a_user_clears_ends_its_run_and_trains_anew(
    write_dag: WriteDag, tasks: Tasks, tmp_path: Path
) -> None:
    path = write_dag(tasks.train(on_finish_action="delete"), SLEEPS_ONCE)
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        out = act(tasks, path, "restarting")
        assert "was stopped because its task was killed" in out, out[-3000:]
        again = run_again(path, last_run(path), clear=True)
        assert again.task_state("train") == "success", again.explained()
        first, second = made.names()
        assert again.xcom("train") == {"run": second}
    assert (first[:-2], first[-2:], second[-2:]) == (second[:-2], "-1", "-2")
    assert again.lines.count("[rank 0] attempt 0") == 1
    tasks.runs.wait_nothing_left()
