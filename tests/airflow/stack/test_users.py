"""What a user does to a task in a real Airflow: marks it failed, deletes it, clears one that waits or is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.held import Held
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import eventually
from tests.airflow.stack.training import WAITS, let, lines, lines_of_ranks, training

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]


def left(stage: Stage) -> dict[str, bool]:
    """The tasks of the runs that are not about to go, and whether those are suspended."""
    return {
        each["metadata"]["name"].rpartition("-")[0].rpartition("-")[0]: bool(each["spec"].get("suspend"))
        for each in stage.tasks.workloads()
        if "deletionTimestamp" not in each["metadata"]
    }


def test_a_task_marked_failed_ends_its_run_as_on_kill_action_says(stage: Stage) -> None:
    ways = {"sync_delete": False, "deferred_delete": True, "deferred_suspend": True, "deferred_keep": True}
    texts = [
        training(stage, task_id=way, deferrable=deferrable, retries=2, on_kill_action=way.partition("_")[2])
        for way, deferrable in ways.items()
    ]
    run = stage.run("\n".join(texts), WAITS)
    tasks = {way: run.task(way) for way in ways}
    for task in tasks.values():
        task.wait_for_line("[rank 0] before 49")
    for task in tasks.values():
        task.mark("failed")
    expected = {"deferred-suspend": True, "deferred-keep": False}
    assert eventually(lambda: left(stage) == expected), left(stage)
    assert {way: task.state for way, task in tasks.items()} == dict.fromkeys(ways, "failed")
    assert len(stage.jobsets.names()) == 4
    for way in ("deferred_delete", "deferred_suspend"):
        tasks[way].wait_for(f"was ended ({way.partition('_')[2]}): a user has ended")
    for task in tasks.values():
        assert lines_of_ranks(task.log()) == lines("before")
        assert "return_value" not in task.xcoms()
        assert not task.events()


def test_a_task_marked_failed_before_it_has_a_run_leaves_none(stage: Stage, tmp_path: Path) -> None:
    held = Held(tmp_path)
    text = held.task(training(stage, deferrable=True, retries=2))
    task = stage.run(text, WAITS, imports=held.imports).task()
    task.wait("running")
    assert eventually(lambda: held.begun), task.explained()
    task.mark("failed")
    held.let_go()
    # The worker goes on before it hears of the mark, or is told to end where it is held.
    assert eventually(lambda: any("its task was killed" in line or line == "Task killed!" for line in task.log()))
    assert eventually(lambda: not left(stage)), left(stage)
    assert (task.state, task.look()["try_number"], task.events()) == ("failed", 1, [])
    assert len(stage.jobsets.names()) <= 1


def test_a_task_that_is_deleted_or_whose_dag_is_ends_its_run(stage: Stage) -> None:
    ways = {"sync": False, "deferred": True, "with_its_dag": True}
    texts = [training(stage, task_id=way, deferrable=deferrable) for way, deferrable in ways.items()]
    run = stage.run("\n".join(texts), WAITS)
    for way in ways:
        run.task(way).wait_for_line("[rank 0] before 49")
    run.task("sync").delete()
    run.task("deferred").delete()
    said = run.task("sync").written
    assert eventually(lambda: left(stage) == {"with-its-dag": False}), f"{left(stage)}\n{said()[-9000:]}"
    run.rest.ask("DELETE", f"/dags/{run.dag_id}")
    assert eventually(lambda: not left(stage)), left(stage)
    assert len(stage.jobsets.names()) == 3


def test_a_task_that_is_cleared_trains_anew_whether_its_run_is_over_or_not(stage: Stage) -> None:
    run = stage.run(training(stage, deferrable=True, retries=2, on_finish_action="keep"), WAITS)
    task = run.task()
    task.wait_for_line("[rank 0] before 49")
    run.clear("train")
    task.wait_for_line("[rank 0] before 49", 2)
    let(stage, "first", "second")
    assert task.wait(tries=2)["state"] == "success", task.explained()
    assert lines_of_ranks(task.log(2)) == lines("before", "first", "second")
    run.wait()  # cleared just before it is seen to be over, its task would never be scheduled: Airflow's race
    run.clear("train")
    task.wait_for_line("[rank 0] before 49", 3)
    let(stage, "first", "second")
    assert task.wait(tries=3)["state"] == "success", task.explained()
    assert lines_of_ranks(task.log(3)) == lines("before", "first", "second")
    names = stage.jobsets.names()
    assert [name.rpartition("-")[2] for name in names] == ["1", "2", "3"]
    assert (task.result(), [event["run"] for event in task.events()]) == (7, names[1:])
    # The first was ended before the second began; the second is the record of a success.
    assert [each["metadata"]["name"] for each in stage.tasks.workloads()] == names[1:]
