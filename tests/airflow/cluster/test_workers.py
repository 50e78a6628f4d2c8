"""A task's worker is terminated: after an action of a user, which the task's state shows, or without one.

When a user marks the task failed or clears it, its state changes before its process is terminated. tests/airflow/stack
has the same tests for deferred tasks, because `dag.test()` cancels no trigger.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import WriteDag
from tests.airflow.harness import last_run, run_again, set_state
from tests.airflow.held import Held
from tests.airflow.stack.created import created
from tests.airflow.workers import StartWorker
from tests.violations import at_most
from tests.waiting import STARTS_WITHIN, until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

SLEEPS_ONCE = """
    import json, os, time
    print("attempt", os.environ["STEPSET_ATTEMPT"], flush=True)
    if os.environ["STEPSET_RUN"].endswith("-1"):
        time.sleep(600)
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps({"run": os.environ["STEPSET_RUN"]}))
"""
SLEEPS = "import time; print('started', flush=True); time.sleep(600)"


def pod_runs(tasks: Tasks) -> bool:
    return any(pod["status"].get("phase") == "Running" for pod in tasks.runs.pods())


def act(start_worker: StartWorker, tasks: Tasks, path: Path, state: str) -> str:
    """Sets the task's state once the run's pod runs, as a user does, terminates the worker and returns its output."""
    with start_worker(path) as worker:
        assert until(lambda: pod_runs(tasks), STARTS_WITHIN)
        set_state(path, state)
        os.kill(worker.pid, signal.SIGTERM)  # as its supervisor does when the server reports the state
        worker.wait(STARTS_WITHIN)
        return worker.output


@pytest.mark.usefixtures("stepset_home")
@pytest.mark.parametrize(
    ("durable", "left"), [pytest.param(True, 1, id="durable"), pytest.param(False, 0, id="not durable")]
)
def test_a_terminated_worker_leaves_its_run_only_if_the_task_is_durable(
    write_dag: WriteDag, start_worker: StartWorker, tasks: Tasks, durable: bool, left: int
) -> None:
    path = write_dag(tasks.train(durable=durable), SLEEPS)
    with start_worker(path) as worker:
        assert until(lambda: pod_runs(tasks), STARTS_WITHIN)
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait(120)
        out = worker.output
    assert "ended as failed" in out, out[-3000:]
    if left:
        assert "the worker is shutting down; run train-" in out
        (workload,) = tasks.workloads()
        assert "deletionTimestamp" not in workload["metadata"]
    else:
        assert "was stopped because its task was killed" in out
        assert until(lambda: not tasks.workloads(), 90)


@pytest.mark.usefixtures("stepset_home")
@pytest.mark.parametrize(
    ("action", "left"), [pytest.param("delete", 0, id="deleted"), pytest.param("suspend", 1, id="suspended")]
)
def test_a_task_that_a_user_marks_failed_ends_its_run(
    write_dag: WriteDag, start_worker: StartWorker, tasks: Tasks, tmp_path: Path, action: str, left: int
) -> None:
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        out = act(start_worker, tasks, write_dag(tasks.train(on_kill_action=action), SLEEPS_ONCE), "failed")
        assert "was stopped because its task was killed" in out, out[-3000:]
        assert "ended as failed" in out
        assert until(lambda: len(tasks.workloads()) == left)
        assert until(lambda: not tasks.runs.pods())
        assert [each["spec"].get("suspend") for each in tasks.workloads()] == [True] * left
        assert len(at_most(1, made.names())) == 1
    if not left:
        tasks.runs.wait_nothing_left()


@pytest.mark.usefixtures("stepset_home")
@pytest.mark.parametrize(
    "way",
    [
        pytest.param({"deferrable": True}, id="deferred"),
        pytest.param({"wait_for_completion": False}, id="without a wait"),
    ],
)
def test_a_task_that_was_ended_before_its_worker_learned_of_it_leaves_no_run(
    write_dag: WriteDag, start_worker: StartWorker, tasks: Tasks, tmp_path: Path, way: dict[str, bool]
) -> None:
    held = Held(tmp_path)
    path = write_dag(held.task(tasks.train(**way)), SLEEPS_ONCE, imports=held.imports)
    with start_worker(path) as worker:
        assert until(lambda: held.started, STARTS_WITHIN)
        set_state(path, "failed")
        held.release()
        worker.wait(STARTS_WITHIN)
        out = worker.output
    assert "was stopped because its task was killed" in out, out[-3000:]
    tasks.runs.wait_nothing_left()


@pytest.mark.usefixtures("stepset_home")
def test_a_task_that_a_user_clears_ends_its_run_and_starts_a_new_one(
    write_dag: WriteDag, start_worker: StartWorker, tasks: Tasks, tmp_path: Path
) -> None:
    path = write_dag(tasks.train(on_finish_action="delete"), SLEEPS_ONCE)
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        out = act(start_worker, tasks, path, "restarting")
        assert "was stopped because its task was killed" in out, out[-3000:]
        again = run_again(path, last_run(path), clear=True)
        assert again.task_state("train") == "success", again.explained()
        first, second = at_most(2, made.names())
        assert again.xcom("train") == {"run": second}
    assert (first[:-2], first[-2:], second[-2:]) == (second[:-2], "-1", "-2")
    assert again.lines.count("[rank 0] attempt 0") == 1
    tasks.runs.wait_nothing_left()
