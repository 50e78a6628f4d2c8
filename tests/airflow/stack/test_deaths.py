"""A task's worker or triggerer dies or freezes in a real Airflow: there is exactly one training."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.airflow.stack.airflow import Airflow
from tests.airflow.stack.component import Component, descendants, kill, parent
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import Task, eventually
from tests.airflow.stack.training import COUNTS, WAITS, lines, lines_of_ranks, signal, training

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]


def owner(airflow: Airflow, task: Task) -> Component:
    """The triggerer that has a task's trigger."""
    job = task.look()["triggerer_job"]
    assert job, "no triggerer has it yet"
    return next(each for each in airflow.triggerers if each.alive and airflow.job(each) == job["id"])


def moved_on(airflow: Airflow, task: Task, first: Component) -> bool:
    """Whether another triggerer takes over its trigger in time."""
    return eventually(lambda: (task.look()["triggerer_job"] or {}).get("id") not in (None, airflow.job(first)))


def each_line_once(task: Task) -> None:
    """Checks that its log has the lines of COUNTS of both ranks in order, and no phase twice."""
    log = task.log()
    for rank in range(2):
        *numbers, last = [
            line.removeprefix(f"[rank {rank}] line ") for line in log if line.startswith(f"[rank {rank}]")
        ]
        assert numbers == [str(number) for number in range(len(numbers))]
        assert last == f"{len(numbers)} is the last"
    phases = [line for line in log if re.match(r"run \S+: ", line)]
    assert len(phases) == len(set(phases)), phases


def one_training(stage: Stage, task: Task) -> str:
    """Checks that there was one run with one event, of which no object remains, and returns its name."""
    (name,) = stage.jobsets.names()
    assert [event["run"] for event in task.events()] == [name]
    stage.nothing_left()
    return name


def test_a_worker_that_dies_leaves_a_run_that_the_next_try_continues(stage: Stage) -> None:
    task = stage.run(training(stage, retries=1, retry_delay=0.1), WAITS).task()
    task.wait_for_line("[rank 0] before 49")
    worker = parent(task.look()["pid"])
    kill(worker, *descendants(worker))
    task.wait("running", tries=2)
    task.wait_for_line("[rank 0] before 49", 2)
    signal(stage, "first", "second")
    assert task.wait()["state"] == "success", task.explained()
    assert task.look()["try_number"] == 2
    assert task.result() == 7
    assert lines_of_ranks(task.log(1)) == lines("before")
    assert lines_of_ranks(task.log(2)) == lines("before", "first", "second")
    assert (
        f"this try follows run {one_training(stage, task)}, because an earlier worker of this task started it and ended"
        " before it"
    ) in task.log(2)


def test_a_triggerer_that_was_frozen_until_another_took_over_changes_nothing(stage: Stage) -> None:
    task = stage.run(training(stage, deferrable=True), WAITS).task()
    task.wait_for_line("[rank 0] before 49")
    first = owner(stage.airflow, task)
    stage.airflow.have_triggerers(2)
    first.freeze()
    assert moved_on(stage.airflow, task, first)
    signal(stage, "first")
    task.wait_for_line("[rank 0] first 49")
    first.thaw()
    task.wait_for("continues: its task is deferred")
    signal(stage, "second")
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    assert lines_of_ranks(task.log()) == lines("before", "first", "second")
    one_training(stage, task)


def test_a_triggerer_whose_event_loop_was_blocked_logs_no_line_twice(stage: Stage, tmp_path: Path) -> None:
    stage.airflow.have_triggerers(1)  # for the training's trigger and the one that blocks it
    task = stage.run(training(stage, deferrable=True, num_nodes=2, log_ranks="all"), COUNTS).task()
    task.wait_for_line("[rank 0] line 300")
    first = owner(stage.airflow, task)
    tmp_path.chmod(0o755)
    imports = "from tests.airflow.stack.blocking import BlockOperator"
    blocking = stage.run(f"BlockOperator(task_id='block', directory={str(tmp_path)!r})", imports=imports)
    try:
        assert eventually((tmp_path / "blocked").exists)
        stage.airflow.have_triggerers(2)
        assert moved_on(stage.airflow, task, first)
        logged = len(lines_of_ranks(task.log()))
        assert eventually(lambda: len(lines_of_ranks(task.log())) > logged + 300, every=1.0), task.explained()
    finally:
        (tmp_path / "continue").touch()  # else that triggerer stays blocked in the following tests
    task.wait_for("continues: its task is deferred")
    signal(stage, "over", pods=2)
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    each_line_once(task)
    one_training(stage, task)
    blocking.task("block").wait("success")


@pytest.mark.parametrize("end", [Component.kill, Component.stop], ids=["killed", "terminated"])
def test_another_triggerer_continues_with_the_next_line_when_one_ends(
    stage: Stage, end: Callable[[Component], None]
) -> None:
    task = stage.run(training(stage, deferrable=True, num_nodes=2, log_ranks="all"), COUNTS).task()
    task.wait_for_line("[rank 0] line 300")
    first = owner(stage.airflow, task)
    stage.airflow.have_triggerers(2)
    end(first)
    assert moved_on(stage.airflow, task, first)
    signal(stage, "over", pods=2)
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    each_line_once(task)
    assert eventually(lambda: "stepset_shown" not in task.xcoms())
    one_training(stage, task)
