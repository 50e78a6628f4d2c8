"""Loops in a real Airflow 3.4: a killed triggerer, and iterations that a user's clear replaces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import Run, eventually
from tests.airflow.stack.training import WAITS, signal, training
from tests.violations import at_most

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]

IMPORTS = "from airflow.sdk import task_group"
TASK = "attempts.train"


def loop(train: str) -> str:
    """Source text of a loop with two iterations."""
    return f"@task_group\ndef attempts():\n    {train}\n\nattempts.loop(max_iterations=2)\n"


def iterations(run: Run, task_id: str = TASK) -> list[dict[str, Any]]:
    """Airflow's records of the iterations, the first one first."""
    found = run.rest.request("GET", f"{run.path}/taskInstances", task_id=task_id)["task_instances"]
    mine = [each for each in found if each["task_id"] == task_id]
    return sorted(mine, key=lambda each: int(each["region_index"]))


def wait_for_iteration(stage: Stage, run: Run, index: int, jobsets: int) -> None:
    """Waits until an iteration is deferred and its JobSet, the `jobsets`-th one, has a pod that runs."""

    def waits() -> bool:
        found = iterations(run)
        return len(found) > index and found[index]["state"] == "deferred" and len(stage.jobsets.names()) == jobsets

    assert eventually(waits), f"{iterations(run)}\n{stage.jobsets.names()}"


def test_each_iteration_has_one_run_although_the_triggerer_is_killed(stage: Stage) -> None:
    run = stage.run(loop(training(stage, deferrable=True)), WAITS, imports=IMPORTS)
    wait_for_iteration(stage, run, 0, 1)
    stage.airflow.have_triggerers(1)
    (first,) = [each for each in stage.airflow.triggerers if each.alive]
    stage.airflow.have_triggerers(2)
    first.kill()
    signal(stage, "first", "second")
    wait_for_iteration(stage, run, 1, 2)
    signal(stage, "first", "second", run=stage.jobsets.names()[1])
    run.wait()
    found = iterations(run)
    assert [(each["state"], each["try_number"]) for each in found] == [("success", 1), ("success", 1)]
    names = at_most(2, stage.jobsets.names())
    assert [name.rpartition("-")[2] for name in names] == ["1", "1"]
    assert len({name.rpartition("-")[0] for name in names}) == 2
    stage.nothing_left()


def test_clearing_the_first_iteration_ends_the_run_of_the_second_which_is_replaced(stage: Stage) -> None:
    run = stage.run(loop(training(stage, deferrable=True)), WAITS, imports=IMPORTS)
    wait_for_iteration(stage, run, 0, 1)
    signal(stage, "first", "second")
    wait_for_iteration(stage, run, 1, 2)
    replaced = iterations(run)[1]
    body = {"dry_run": False, "dag_run_id": run.run_id, "only_failed": False, "include_downstream": True}
    selected = {"task_instance_ids": [iterations(run)[0]["id"]]}
    run.rest.request("POST", f"/dags/{run.dag_id}/clearTaskInstances", {**body, **selected})
    wait_for_iteration(stage, run, 0, 3)
    assert eventually(lambda: len(left(stage)) == 1), f"{left(stage)}\n{run.task(TASK).written()[-8000:]}"
    signal(stage, "first", "second", run=stage.jobsets.names()[2])
    wait_for_iteration(stage, run, 1, 4)
    signal(stage, "first", "second", run=stage.jobsets.names()[3])
    run.wait()
    assert iterations(run)[1]["region_id"] != replaced["region_id"]
    names = at_most(4, stage.jobsets.names())
    assert [name.rpartition("-")[2] for name in names] == ["1", "1", "2", "1"]
    assert names[0].rpartition("-")[0] == names[2].rpartition("-")[0]
    assert len({name.rpartition("-")[0] for name in names}) == 3
    stage.nothing_left()


def left(stage: Stage) -> list[str]:
    """The JobSets that are not being deleted."""
    found = [each["metadata"] for each in stage.tasks.workloads()]
    return [metadata["name"] for metadata in found if "deletionTimestamp" not in metadata]
