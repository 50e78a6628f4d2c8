"""What dies under a task in a real Airflow, or stands still for a while: its worker, its triggerer. One training."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.airflow.stack.airflow import Airflow
from tests.airflow.stack.component import Component, descendants, kill, parent
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import Task, eventually
from tests.airflow.stack.training import WAITS, let, lines, lines_of_ranks

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]


def noted(stage: Stage, task: Task) -> bool:
    """Whether the last line that the only pod has printed is noted as written for whoever takes the trigger over."""
    runs, (pod,) = stage.tasks.runs, stage.tasks.runs.pods()
    about = pod["metadata"]
    last = runs.cluster.kubectl("logs", about["name"], "-n", runs.namespace, "--timestamps", "--tail=1").split()[0]
    if "stepset_shown" not in task.xcoms():
        return False
    place = task.result("stepset_shown")["position"]["printed"].get(about["uid"]) or {}
    return place.get("last") == last


def owner(airflow: Airflow, task: Task) -> Component:
    """The triggerer that has a task's trigger."""
    job = task.look()["triggerer_job"]
    assert job, "no triggerer has it yet"
    return next(each for each in airflow.triggerers if each.alive and airflow.job(each) == job["id"])


def training(stage: Stage, **parameters: object) -> str:
    """Text of a task whose run is deleted when it is over, and whose end is an event of an asset."""
    text = stage.train(on_finish_action="delete", outlets=[], **parameters)
    return text.replace("outlets=[]", f"outlets=[Asset({stage.name!r})]")


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
    assert f"run {one_training(stage, task)} is there already: this task goes on with it" in task.log(2)


def test_a_triggerer_that_stood_still_until_another_had_its_work_changes_nothing(stage: Stage) -> None:
    task = stage.run(training(stage, deferrable=True), WAITS).task()
    task.wait_for_line("[rank 0] before 49")
    assert eventually(lambda: noted(stage, task))
    first = owner(stage.airflow, task)
    stage.airflow.have_triggerers(2)
    first.freeze()
    assert eventually(lambda: (task.look()["triggerer_job"] or {}).get("id") not in (None, stage.airflow.job(first)))
    let(stage, "first")
    task.wait_for_line("[rank 0] first 49")
    first.thaw()
    said = "goes on: its task is deferred"
    assert eventually(lambda: any(said in line for line in task.log())), task.explained()
    let(stage, "second")
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    assert lines_of_ranks(task.log()) == lines("before", "first", "second")
    one_training(stage, task)


@pytest.mark.parametrize("end", [Component.kill, Component.stop], ids=["killed", "told to end"])
def test_a_triggerer_that_ends_is_followed_by_another_that_goes_on_where_it_was(
    stage: Stage, end: Callable[[Component], None]
) -> None:
    task = stage.run(training(stage, deferrable=True), WAITS).task()
    task.wait_for_line("[rank 0] before 49")
    assert eventually(lambda: noted(stage, task))
    first = owner(stage.airflow, task)
    stage.airflow.have_triggerers(2)
    end(first)
    assert eventually(lambda: (task.look()["triggerer_job"] or {}).get("id") not in (None, stage.airflow.job(first)))
    let(stage, "first")
    task.wait_for_line("[rank 0] first 49")
    let(stage, "second")
    assert task.wait()["state"] == "success", task.explained()
    assert (task.look()["try_number"], task.result()) == (1, 7)
    assert lines_of_ranks(task.log()) == lines("before", "first", "second")
    assert eventually(lambda: "stepset_shown" not in task.xcoms())
    one_training(stage, task)
