"""An execution_timeout that expires while a run is created ends the run as `on_kill_action` requires."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowTaskTimeout

from stepset.watch.present.sentences import duration
from stepset_airflow import TrainingRetryPolicy
from stepset_airflow.exceptions import TrainingTimeoutError
from stepset_airflow.page.document import KEY
from tests.airflow.conftest import RunDag, WriteDag
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.serving import serving
from tests.kubernetes.stored_objects import StoredObjects

pytestmark = pytest.mark.airflow


class SlowCluster:
    """A server that stores objects.

    Args:
        silent: whether the server never answers the request to create a ConfigMap.

    Attributes:
        objects: the stored objects.
        server: the server and its requests.
    """

    def __init__(self, *, silent: bool = True) -> None:
        self._silent = silent
        self.objects = StoredObjects(lambda: self.server.bodies[-1][2])
        self.server = ApiServer(self._answer)

    def _answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if self._silent and method == "POST" and path.endswith("/configmaps"):
            return 0, None
        return self.objects.answer(method, path, query)

    def created(self) -> bool:
        """Whether a JobSet was created."""
        return any(method == "POST" and path.endswith("/jobsets") for method, path, _ in self.server.requests)


@pytest.mark.parametrize(("action", "remaining"), [("delete", 0), ("keep", 1)])
@pytest.mark.parametrize(
    "way", ["", "deferrable=True", "wait_for_completion=False"], ids=["waiting", "deferrable", "starting"]
)
def test_the_run_that_is_being_created_is_handled_as_the_task_requires(
    write_dag: WriteDag,
    run_dag: RunDag,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    remaining: int,
    way: str,
) -> None:
    for seconds in (5, 30, 120):
        cluster = SlowCluster()
        with serving(cluster.server) as port:
            extra = {"kube_config_path": kubeconfig(tmp_path, port), "namespace": "ns"}
            connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
            monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)
            task = (
                f'DistributedTrainOperator(task_id="train", image="i", script="train.py", on_kill_action="{action}",'
                f" execution_timeout=datetime.timedelta(seconds={seconds}), {way})"
            )
            run = run_dag(write_dag(task, "pass", imports="import datetime"))
        assert run.task_state("train") == "failed", run.explained()
        assert type(run.error).__name__ == "AirflowTaskTimeout", run.explained()
        if cluster.created():
            assert len(cluster.objects.of_kind("jobsets")) == remaining, run.explained()
            end = f" was cancelled: execution_timeout ({duration(seconds)}) expired"
            assert any(end in line for line in run.lines) is (action == "delete"), run.explained()
            return
    pytest.fail("no run was created in two minutes")


def test_the_page_of_a_deferred_task_keeps_the_status_that_its_trigger_reported(
    write_dag: WriteDag, run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SlowCluster(silent=False)
    with serving(cluster.server) as port:
        extra = {"kube_config_path": kubeconfig(tmp_path, port), "namespace": "ns"}
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)
        task = (
            'DistributedTrainOperator(task_id="train", image="i", script="train.py", deferrable=True,'
            " execution_timeout=datetime.timedelta(seconds=20))"
        )
        run = run_dag(write_dag(task, "pass", imports="import datetime"))
    assert type(run.error).__name__ == "AirflowTaskTimeout", run.explained()
    page = run.xcom("train", key=KEY)
    assert (page["job"], page["phase"], page["failure"]["kind"]) == ("train", "Failed", "Cancelled"), page
    assert page["created"] and page["world_size"], page


HANGS = """
    import time

    def load():
        time.sleep(1000)

    load()
"""


def test_the_exception_of_a_local_run_that_hung_contains_the_hang(write_dag: WriteDag, run_dag: RunDag) -> None:
    for seconds in (20, 60, 240):
        task = (
            'DistributedTrainOperator(task_id="train", backend="local", framework="plain", script="train.py",'
            ' hang=dict(after="2s", first="2s"),'
            f" execution_timeout=datetime.timedelta(seconds={seconds}))"
        )
        run = run_dag(write_dag(task, HANGS, imports="import datetime"))
        assert run.task_state("train") == "failed", run.explained()
        if isinstance(run.error, TrainingTimeoutError):
            assert [group.ranks for group in run.error.hang.guilty] == [(0,)]
            assert TrainingRetryPolicy().evaluate(run.error, 1, 3).action is RetryAction.FAIL
            words = (
                f"execution_timeout ({duration(seconds)}) expired; ",
                "; before, the run had made no progress for ",
            )
            ends = [line for line in run.lines if all(each in line for each in words)]
            assert ends and "in load train.py:" in ends[0], run.explained()
            return
        assert type(run.error) is AirflowTaskTimeout, run.explained()
    pytest.fail("no hang was found in four minutes")
