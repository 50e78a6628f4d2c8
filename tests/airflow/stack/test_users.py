"""A user marks a task as failed, deletes it or clears it, while it waits or after its end, in a real Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.held import Held
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import eventually
from tests.airflow.stack.training import WAITS, lines, lines_of_ranks, signal, training
from tests.violations import at_most

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]


def left(stage: Stage) -> dict[str, bool]:
    """Task -> whether its run is suspended, of the runs that are not being deleted."""
    return {
        each["metadata"]["name"].rpartition("-")[0].rpartition("-")[0]: bool(each["spec"].get("suspend"))
        for each in stage.tasks.workloads()
        if "deletionTimestamp" not in each["metadata"]
    }


def test_a_task_marked_failed_ends_its_run_as_on_kill_action_specifies(stage: Stage) -> None:
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
    assert len(at_most(4, stage.jobsets.names())) == 4
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
    assert eventually(lambda: held.started), task.explained()
    task.mark("failed")
    held.release()
    # The worker either continues before it learns of the mark, or is terminated while it is blocked.
    assert eventually(lambda: any("its task was killed" in line or line == "Task killed!" for line in task.log()))
    assert eventually(lambda: not left(stage)), left(stage)
    assert (task.state, task.look()["try_number"], task.events()) == ("failed", 1, [])
    at_most(1, stage.jobsets.names())


def test_deleting_a_task_or_its_dag_ends_its_run(stage: Stage) -> None:
    ways = {"sync": False, "deferred": True, "with_its_dag": True}
    texts = [training(stage, task_id=way, deferrable=deferrable) for way, deferrable in ways.items()]
    run = stage.run("\n".join(texts), WAITS)
    for way in ways:
        run.task(way).wait_for_line("[rank 0] before 49")
    run.task("sync").delete()
    run.task("deferred").delete()
    log = run.task("sync").written
    assert eventually(lambda: left(stage) == {"with-its-dag": False}), f"{left(stage)}\n{log()[-9000:]}"
    run.rest.request("DELETE", f"/dags/{run.dag_id}")
    assert eventually(lambda: not left(stage)), left(stage)
    assert len(at_most(3, stage.jobsets.names())) == 3


def test_a_cleared_task_starts_a_new_run_whether_its_run_has_ended_or_not(stage: Stage) -> None:
    run = stage.run(training(stage, deferrable=True, retries=2, on_finish_action="keep"), WAITS)
    task = run.task()
    task.wait_for_line("[rank 0] before 49")
    run.clear("train")
    task.wait_for_line("[rank 0] before 49", 2)
    signal(stage, "first", "second")
    assert task.wait(tries=2)["state"] == "success", task.explained()
    assert lines_of_ranks(task.log(2)) == lines("before", "first", "second")
    run.wait()  # a clear just before Airflow records the end leaves the task unscheduled: a race in Airflow
    run.clear("train")
    task.wait_for_line("[rank 0] before 49", 3)
    signal(stage, "first", "second")
    assert task.wait(tries=3)["state"] == "success", task.explained()
    assert lines_of_ranks(task.log(3)) == lines("before", "first", "second")
    names = at_most(3, stage.jobsets.names())
    assert [name.rpartition("-")[2] for name in names] == ["1", "2", "3"]
    assert (task.result(), [event["run"] for event in task.events()]) == (7, names[1:])
    # The first run was ended before the second started; the second has succeeded and is kept.
    assert [each["metadata"]["name"] for each in stage.tasks.workloads()] == names[1:]
