"""A login page or a proxy answers instead of the API server: a task fails or logs a line that states what answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from stepset.errors import InfrastructureError
from stepset_airflow import DistributedTrainSensor
from stepset_airflow.hooks.cluster import ClusterAccess, connect
from stepset_airflow.triggers.run_end import RunEndTrigger
from tests.airflow.conftest import RunDag, WriteDag
from tests.kubernetes.nowhere import kubeconfig
from tests.security.test_other_servers import DESCRIBED, PAGES, serving

pytestmark = pytest.mark.airflow

SHOWN = ("redirect", "bare 404", "404 of a Go server", "login page", "JSON", "empty body", "403 page")


@pytest.fixture(params=SHOWN)
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a page, and a connection to its server until the end of the test."""
    served = serving(lambda _: PAGES[request.param])
    extra = {"kube_config_path": kubeconfig(tmp_path, served.__enter__()), "namespace": "ml"}
    request.addfinalizer(lambda: served.__exit__(None, None, None))
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    return str(request.param)


def test_the_operator_fails_with_the_answer(page: str, write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(
        write_dag('DistributedTrainOperator(task_id="train", framework="plain", image="a", command=["true"])')
    )
    assert run.task_state("train") == "failed"
    assert DESCRIBED[page] in str(run.error), run.explained()


def test_the_sensor_of_a_worker_logs_the_answer(page: str) -> None:
    sensor = DistributedTrainSensor(task_id="wait", run_name="digits-1")
    with capture_logs() as entries:
        assert not sensor.poke({}).is_done  # type: ignore[typeddict-item]  # the context is not used
    assert any(DESCRIBED[page] in str(each["event"]) for each in entries)


def test_the_trigger_of_a_sensor_ends_with_the_answer(page: str) -> None:
    async def result() -> object:
        with anyio.fail_after(60):
            return await RunEndTrigger("digits-1", poll_interval=0.01)._result()

    assert DESCRIBED[page] in str(asyncio.run(result()))


def test_the_hook_reports_the_answer(page: str) -> None:
    with connect(ClusterAccess()) as connection, pytest.raises(InfrastructureError) as raised:
        connection.get("/api/v1/namespaces/ml/pods")
    assert DESCRIBED[page] in str(raised.value)
