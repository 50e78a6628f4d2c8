"""A task or trigger without rights prints a command; once an administrator has run it, the same one succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.jobset_finished import JobSetFinishedEventTrigger
from stepset_airflow.triggers.workload_reference import workload_reference
from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag
from tests.cluster.remedies import Requester, succeeds_after_its_remedy
from tests.cluster.runs import ACCOUNT, kubeconfig_of

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

SENSOR = "DistributedTrainSensor(task_id='wait', run_name='run', target='job', deferrable=False, timeout=1)"


def requester(tasks: Tasks) -> Requester:
    runs = tasks.runs
    return Requester(runs.cluster, runs.namespace, ("--account", f"{runs.namespace}/{ACCOUNT}"), runs.kubeconfig)


def attempt(run_dag: RunDag, dag: Path) -> Callable[[], str]:
    """Runs a DAG; an attempt returns the errors of its task and what it logged."""

    def run() -> str:
        done = run_dag(dag)
        return "" if done.state == "success" else done.explained()

    return run


@pytest.mark.parametrize(
    ("target", "deferrable"),
    [("job", False), ("job", True), ("jobset", True), ("trainjob", False), ("statefulset", True)],
)
def test_the_operator(write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, target: str, deferrable: bool) -> None:
    dag = write_dag(tasks.train(deferrable=deferrable, target=target), "pass")
    succeeds_after_its_remedy(requester(tasks), attempt(run_dag, dag), targets=[target], backend="airflow")


@pytest.mark.parametrize("runs", ["job"], indirect=True)
@pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
def test_the_sensor(write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool) -> None:
    tasks.runs.run("pass")
    sensor = SENSOR.replace("False", str(deferrable))
    dag = write_dag(sensor, imports="from stepset_airflow import DistributedTrainSensor")
    succeeds_after_its_remedy(requester(tasks), attempt(run_dag, dag), targets=["job"], backend="airflow")


def triggerer_of(tasks: Tasks) -> tuple[Requester, ClusterAccess]:
    """The account of a triggerer, which has no rights although that of the worker has all."""
    runs, path = tasks.runs, tasks.runs.directory / "triggerer.kubeconfig"
    about = {"name": "triggerer", "namespace": runs.namespace}
    runs.cluster.objects.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}, runs.namespace)
    token = runs.cluster.objects.token("triggerer", runs.namespace, 3600)
    path.write_text(yaml.safe_dump(kubeconfig_of(runs.cluster, token, runs.namespace)))
    account = Requester(runs.cluster, runs.namespace, ("--account", f"{runs.namespace}/triggerer"), path)
    return account, ClusterAccess(None, runs.namespace, config_file=str(path))


@pytest.mark.parametrize("runs", ["statefulset"], indirect=True)
def test_the_trigger_of_a_deferred_operator(tasks: Tasks) -> None:
    made, _ = tasks.runs.backend().make(tasks.runs.request("pass", owner="test"))
    account, access = triggerer_of(tasks)
    fields = DistributedTrainTrigger(access.to_dict(), workload_reference(made.workload, "statefulset")).serialize()[1]

    async def event() -> str:
        async for each in DistributedTrainTrigger(**fields).run():
            return str(each.payload.get("error", ""))
        raise AssertionError("no event")

    succeeds_after_its_remedy(account, lambda: asyncio.run(event()), targets=["statefulset"], backend="airflow")


def test_the_trigger_of_an_asset(tasks: Tasks) -> None:
    """It does not end: it warns, and goes on once it has the rights."""
    account, access = triggerer_of(tasks)
    trigger = JobSetFinishedEventTrigger(**access.to_dict())

    async def first_line() -> str:
        with capture_logs() as entries:
            following = asyncio.ensure_future(anext(trigger.run()))
            while not entries:
                await asyncio.wait({following}, timeout=0.1)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        line = str(entries[0]["event"])
        return "" if line.startswith("runs that end in namespace") else line

    succeeds_after_its_remedy(account, lambda: asyncio.run(first_line()), backend="airflow")
