"""What dies under a task in a real Airflow, or stands still for a while: its worker, its triggerer. One training."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.airflow.stack.airflow import Airflow
from tests.airflow.stack.component import Component, descendants, kill, parent
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import Task, eventually
from tests.airflow.stack.training import TALKS, WAITS, let, lines, lines_of_ranks, training

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]


def owner(airflow: Airflow, task: Task) -> Component:
    """The triggerer that has a task's trigger."""
    job = task.look()["triggerer_job"]
    assert job, "no triggerer has it yet"
    return next(each for each in airflow.triggerers if each.alive and airflow.job(each) == job["id"])


def moved_on(airflow: Airflow, task: Task, first: Component) -> bool:
    """Whether another triggerer has its trigger in time."""
    return eventually(lambda: (task.look()["triggerer_job"] or {}).get("id") not in (None, airflow.job(first)))


def each_line_once(task: Task) -> None:
    """Its log has all that two ranks have said of TALKS, in their order, and no phase twice."""
    log = task.log()
    for rank in range(2):
        *said, last = [line.removeprefix(f"[rank {rank}] line ") for line in log if line.startswith(f"[rank {rank}]")]
        assert said == [str(number) for number in range(len(said))]
        assert last == f"{len(said)} is the last"
    phases = [line for line in log if re.match(r"run \S+: ", line)]
    assert len(phases) == len(set(phases)), phases


def one_training(stage: Stage, task: Task) -> str:
    """The run's name, when there was one, it was told of once, and nothing of it is left."""
    (name,) = stage.jobsets.names()
    assert [event["run"] for event in task.events()] == [name]
    stage.nothing_left()
    return name


def test_a_worker_that_dies_leaves_a_run_that_the_next_try_goes_on_with(stage: Stage) -> None:
    task = stage.run(training(stage, retries=1, retry_delay=0.1), WAITS).task()
    task.wait_for_line("[rank 0] before 49")
    worker = parent(task.look()["pid"])
    kill(worker, *descendants(worker))
    task.wait("running", tries=2)
    task.wait_for_line("[rank 0] before 49", 2)
    let(stage, "first", "second")
    assert task.wait()["state"] == "success", task.explained()
    assert task.look()["try_number"] == 2
    assert task.result() == 7
    assert lines_of_ranks(task.log(1)) == lines("before")
    assert lines_of_ranks(task.log(2)) == lines("before", "first", "second")
    assert f"run {one_training(stage, task)} exists already: this task follows it" in task.log(2)


def test_a_triggerer_that_stood_still_until_another_had_its_work_changes_nothing(stage: Stage) -> None:
    task = stage.run(training(stage, deferrable=True), WAITS).task()
    task.wait_for_line("[rank 0] before 49")
    first = owner(stage.airflow, task)
    stage.airflow.have_triggerers(2)
    first.freeze()
    assert moved_on(stage.airflow, task, first)
    let(stage, "first")
    task.wait_for_line("[rank 0] first 49")
    first.thaw()
    task.wait_for("continues: its task is deferred")
    let(stage, "second")
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    assert lines_of_ranks(task.log()) == lines("before", "first", "second")
    one_training(stage, task)


def test_a_triggerer_whose_triggers_stand_still_amid_lines_says_nothing_twice_when_they_go_on(
    stage: Stage, tmp_path: Path
) -> None:
    stage.airflow.have_triggerers(1)  # for the training's trigger and the one that blocks it
    task = stage.run(training(stage, deferrable=True, num_nodes=2, log_ranks="all"), TALKS).task()
    task.wait_for_line("[rank 0] line 300")
    first = owner(stage.airflow, task)
    tmp_path.chmod(0o755)
    imports = "from tests.airflow.stack.blocking import BlockOperator"
    blocking = stage.run(f"BlockOperator(task_id='block', directory={str(tmp_path)!r})", imports=imports)
    try:
        assert eventually((tmp_path / "blocked").exists)
        stage.airflow.have_triggerers(2)
        assert moved_on(stage.airflow, task, first)
        said = len(lines_of_ranks(task.log()))
        assert eventually(lambda: len(lines_of_ranks(task.log())) > said + 300, every=1.0), task.explained()
    finally:
        (tmp_path / "go on").touch()  # else nothing in that triggerer goes on in the tests that follow
    task.wait_for("continues: its task is deferred")
    let(stage, "over", pods=2)
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    each_line_once(task)
    one_training(stage, task)
    blocking.task("block").wait("success")


@pytest.mark.parametrize("end", [Component.kill, Component.stop], ids=["killed", "told to end"])
def test_a_triggerer_that_ends_amid_lines_is_followed_by_another_that_goes_on_with_the_next(
    stage: Stage, end: Callable[[Component], None]
) -> None:
    task = stage.run(training(stage, deferrable=True, num_nodes=2, log_ranks="all"), TALKS).task()
    task.wait_for_line("[rank 0] line 300")
    first = owner(stage.airflow, task)
    stage.airflow.have_triggerers(2)
    end(first)
    assert moved_on(stage.airflow, task, first)
    let(stage, "over", pods=2)
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    each_line_once(task)
    assert eventually(lambda: "stepset_shown" not in task.xcoms())
    one_training(stage, task)
