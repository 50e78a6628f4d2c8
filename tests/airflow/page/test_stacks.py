"""The stacks of a run on its page: whose run it is, how the cluster is reached, and how many collections run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import Phase, RankStatus, RunStatus
from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.stacks import MOST_AT_ONCE, Collections, RunOfTask, message_page, run_of_task
from stepset_airflow.run_record import FollowSettings, RunRecord
from tests.airflow.page.stored import StoredRuns
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.serving import serving

pytestmark = [pytest.mark.airflow, pytest.mark.local]

TASK = {"dag_id": "dag", "run_id": "run", "task_id": "train", "map_index": -1}
ROWS = (RankStatus("rank 0", 0, "pod", state="Running"),)
RUNNING = RunStatus("train-1", "train", "kubernetes", Phase.RUNNING, created=1e9, started=1e9, ranks=ROWS)


def document(status: RunStatus = RUNNING) -> dict[str, Any]:
    history = RunHistory({"namespace": "forged", "target": "jobset", "try_number": 1})
    history.record(status, 1e9)
    found: dict[str, Any] = json.loads(json.dumps(history.document(1e9)))
    return found


def record(**access: Any) -> dict[str, Any]:
    return RunRecord("train-1", "ml", uid="u", follow=FollowSettings(access=ClusterAccess(**access))).to_dict()


class TestRunOfTask:
    def test_the_record_states_the_namespace_and_the_connection(self) -> None:
        found = run_of_task(TASK, document(), record(kubernetes_conn_id="gpus"))
        assert found.access == ClusterAccess("gpus", "ml")
        assert (found.name, found.namespace) == ("train-1", "ml")
        assert found.labels == {"dag_id": "dag", "run_id": "run", "task_id": "train"}

    @pytest.mark.parametrize(
        ("training", "state", "why"),
        [
            (None, record(), "no run"),
            (document(), None, "no record"),
            (document(), {"name": 1}, "no record"),
            (document(), record(config_file="/dags/kubeconfig"), "does not read the kubeconfig of a task"),
        ],
    )
    def test_other_tasks_have_no_stacks(self, training: dict[str, Any] | None, state: object, why: str) -> None:
        with pytest.raises(BadInputError, match=why):
            run_of_task(TASK, training, state)

    def test_a_run_without_the_labels_of_the_task_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STEPSET_HOME", str(tmp_path))
        job = {"name": "other", "framework": "plain", "command": ["true"], "labels": {"dag_id": "others"}}
        status = stepset.run(job, backend="local")
        with pytest.raises(BadInputError, match="does not have the labels of this task"):
            RunOfTask(status.name, {"dag_id": "dag"}).document()
        with pytest.raises(BadInputError, match="is over"):
            RunOfTask(status.name, {"dag_id": "others"}).document()


class TestCollections:
    def test_a_run_is_read_once_at_a_time(self) -> None:
        collections, reads, end = Collections(), threading.Event(), threading.Event()

        def slow() -> str:
            reads.set()
            assert end.wait(60)
            return "slow"

        answers: list[str] = []
        first = threading.Thread(target=lambda: answers.append(collections.read("a", slow)))
        first.start()
        assert reads.wait(60)
        with pytest.raises(InfrastructureError, match="already being read"):
            collections.read("a", lambda: "never")
        assert collections.read("b", lambda: "another run") == "another run"
        end.set()
        first.join(60)
        assert answers == ["slow"]
        assert collections.read("a", lambda: "again") == "again"

    def test_a_collection_that_is_too_slow_blocks_only_its_run(self) -> None:
        collections, end = Collections(time_limit=0.01), threading.Event()

        def slow() -> str:
            assert end.wait(60)
            return ""

        for run in range(MOST_AT_ONCE):
            with pytest.raises(InfrastructureError, match="have not answered"):
                collections.read(run, slow)
        with pytest.raises(InfrastructureError, match="too many runs"):
            collections.read("another", slow)
        end.set()


def test_a_message_is_text() -> None:
    assert "<b>" not in message_page("<b>", "<b>")


@pytest.fixture(scope="module", autouse=True)
def runs(stored: StoredRuns) -> None:
    stored.add("dag", "train", document())


@pytest.fixture
def client(stored: StoredRuns) -> Iterator[Any]:
    from fastapi.testclient import TestClient

    with TestClient(stored.application) as made:
        yield made
    stored.user = "all"


PATH = "/api/dags/dag/dagRuns/run/taskInstances/train/stacks"


def test_requests_of_other_sites_and_of_users_who_may_only_read_are_rejected(stored: StoredRuns, client: Any) -> None:
    for site, user, status in (
        ("cross-site", "all", 403),
        ("same-site", "all", 403),
        ("same-origin", "PUT", 403),
        ("same-origin", "TASK_LOGS", 403),
        ("same-origin", "all", 503),
    ):
        stored.user = user
        answer = client.get(PATH, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == status, (site, user)
    assert "this task has no record of its run" in answer.text
    assert "stepset stacks train-1" in answer.text


def test_the_connection_of_the_record_is_used(
    stored: StoredRuns, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ApiServer(lambda method, path, query: (404, {"kind": "Status", "code": 404, "message": "not found"}))
    with serving(server) as port:
        extra = {"kube_config_path": kubeconfig(tmp_path, port)}
        monkeypatch.setenv("AIRFLOW_CONN_GPUS", json.dumps({"conn_type": "kubernetes", "extra": extra}))
        stored.add_record("dag", "train", record(kubernetes_conn_id="gpus"))
        answer = client.get(PATH)
    assert answer.status_code == 503
    assert any("/namespaces/ml/" in path for _, path, _ in server.requests)
