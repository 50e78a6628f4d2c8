"""Runs that Airflow did not start: a sensor without a worker, and an asset watcher, in a real Airflow."""

from __future__ import annotations

import pytest

from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import eventually
from tests.airflow.stack.training import WAITS, signal
from tests.violations import at_most

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]

RETURNS_EVENT = """
@task
def report(triggering_asset_events=None):
    (events,) = triggering_asset_events.values()
    return events[-1].extra
report()
"""


def started_by_the_command_line(stage: Stage) -> str:
    """Starts a run with `stepset run` and returns its name once its pod runs."""
    runs = stage.tasks.runs
    done = runs.cli("run", runs.job_file(WAITS), "--detach")
    assert done.returncode == 0, done.stderr
    assert eventually(lambda: any(pod["status"].get("phase") == "Running" for pod in runs.pods()))
    (workload,) = stage.tasks.workloads()
    return str(workload["metadata"]["name"])


def test_a_sensor_waits_for_a_run_of_the_command_line_without_a_worker(stage: Stage) -> None:
    name = started_by_the_command_line(stage)
    text = (
        f"DistributedTrainSensor(task_id='wait', run_name={name!r}, kubernetes_conn_id={stage.connection!r},"
        " start_from_trigger=True, poll_interval=1)"
    )
    task = stage.run(text).task("wait")
    task.wait("deferred", tries=0)
    task.wait_for_line(f"run {name}: Running, 1 rank")
    assert task.look()["pid"] is None, "the sensor had a worker"
    signal(stage, "first", "second")
    assert task.wait()["state"] == "success", task.explained()
    assert task.result() == 7
    assert at_most(1, stage.jobsets.names()) == [name]


def test_a_run_that_ends_triggers_the_dag_of_an_asset_watcher(stage: Stage) -> None:
    watched = f"JobSetFinishedEventTrigger(job='job', kubernetes_conn_id={stage.connection!r})"
    asset = f"Asset('trained', watchers=[AssetWatcher(name='runs', trigger={watched})])"
    name = started_by_the_command_line(stage)
    dag_id = stage.dag(RETURNS_EVENT, schedule=f"[{asset}]")
    line = f"runs that end in namespace {stage.connection} are reported from now on"
    assert eventually(lambda: any(line in each.log.read_text() for each in stage.airflow.triggerers))
    signal(stage, "first", "second")
    assert eventually(lambda: len(stage.airflow.rest.runs(dag_id)) == 1)
    (run,) = stage.airflow.rest.runs(dag_id)
    task = run.task("report")
    assert task.wait()["state"] == "success", task.explained()
    payload = task.result()["payload"]
    assert payload.pop("uid")
    expected = {"run": name, "job": "job", "namespace": stage.connection, "phase": "Succeeded", "result": 7}
    assert payload == expected
    assert at_most(1, stage.jobsets.names()) == [name]
