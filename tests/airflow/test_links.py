"""The addresses of a task instance's links."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stepset.run_status import Failure, FailureKind
from stepset_airflow import DistributedTrainOperator
from stepset_airflow.links.training import FailedRankLink, LinkFields, TrainingLink, WorkloadLink, links_of

pytestmark = pytest.mark.airflow

KEY = SimpleNamespace(dag_id="my dag", run_id="manual__2026-01-01T00:00:00+00:00", task_id="train", map_index=-1)
DASHBOARD = "https://dash.example/{target}/{namespace}/{run}"
LOGS = "https://logs.example/?pod={pod}&rank={rank}"


@pytest.fixture
def train() -> DistributedTrainOperator:
    """A task whose run is on a cluster."""
    task = DistributedTrainOperator(task_id="train", script="train.py")
    task.link_fields = LinkFields("ml", "train-1", "jobset")
    return task


def test_the_page_is_a_tab_of_the_task_instance(train: DistributedTrainOperator) -> None:
    link = TrainingLink().get_link(train, ti_key=KEY)
    assert link.endswith(
        "/dags/my%20dag/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/train/plugin/stepset-training"
    )


def test_a_mapped_task_instance_has_its_own_page(train: DistributedTrainOperator) -> None:
    key = SimpleNamespace(**{**vars(KEY), "map_index": 3})
    assert "/tasks/train/mapped/3/plugin/" in TrainingLink().get_link(train, ti_key=key)


def test_the_link_to_the_page_is_absolute_if_airflow_has_a_base_url(
    train: DistributedTrainOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://flow.example/airflow/")
    assert TrainingLink().get_link(train, ti_key=KEY).startswith("https://flow.example/airflow/dags/")


def test_the_workload_link_leads_to_the_configured_dashboard(
    train: DistributedTrainOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WorkloadLink().get_link(train, ti_key=KEY) == ""
    monkeypatch.setenv("AIRFLOW__STEPSET__RUN_URL", DASHBOARD)
    assert WorkloadLink().get_link(train, ti_key=KEY) == "https://dash.example/jobset/ml/train-1"


def test_only_a_rank_that_failed_has_a_link_to_its_log(
    train: DistributedTrainOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__STEPSET__LOGS_URL", LOGS)
    assert FailedRankLink().get_link(train, ti_key=KEY) == ""
    assert train.link_fields is not None
    train.link_fields = train.link_fields.with_failure(Failure(FailureKind.USER_ERROR, "", "", rank=3, pod="a&b"))
    assert FailedRankLink().get_link(train, ti_key=KEY) == "https://logs.example/?pod=a%26b&rank=3"


def test_a_link_without_an_address_is_left_out(train: DistributedTrainOperator) -> None:
    assert list(links_of(train, KEY)) == [TrainingLink().xcom_key]
