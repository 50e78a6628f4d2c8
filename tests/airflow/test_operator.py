"""The operator's parameters, their checks, and serialisation."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import DagSerialization

from stepset.defaults import JOB_FIELDS
from stepset.spec import TrainingJob
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import FirstFailure, RunEnded
from stepset_airflow import DistributedTrainOperator
from tests.watch.cluster.streams import final

pytestmark = pytest.mark.airflow

NESTED: dict[str, Any] = {
    "framework": {"kind": "torch", "elastic": {"min_nodes": 1}},
    "num_nodes": "{{ params.nodes }}",
    "procs_per_node": 2,
    "script": "train.py",
    "args": ["--epochs", "{{ params.epochs }}"],
    "env": {"LR": "0.1", "TOKEN": {"secret": "hub", "key": "token"}},
    "storage": [{"path": "/data", "claim": "datasets"}],
    "queue_name": "team-a",
}


def train(**parameters: Any) -> DistributedTrainOperator:
    return DistributedTrainOperator(task_id="train", **{"script": "train.py", **parameters})


def test_every_field_of_the_job_file_is_a_templated_parameter_of_the_same_name() -> None:
    parameters = inspect.signature(DistributedTrainOperator.__init__).parameters
    for field in JOB_FIELDS:
        assert field in parameters
        assert field in DistributedTrainOperator.template_fields
    assert set(JOB_FIELDS) == set(TrainingJob.model_fields)


def test_no_parameter_takes_a_name_that_airflow_uses() -> None:
    ours = set(inspect.signature(DistributedTrainOperator.__init__).parameters) - {"self", "kwargs"}
    assert not [name for name in ours if hasattr(BaseOperator, name)]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"module": "digits.train"}, r"give only one of .* script and module are given"),
        ({"script": None}, r"no program is given"),
        ({"on_kill_action": "ignore"}, r"on_kill_action: 'ignore' is not known; use delete, suspend, keep"),
        ({"on_finish_action": "purge"}, r"on_finish_action: 'purge' is not known; use keep, delete, delete_succeeded"),
        ({"log_ranks": "some"}, r"log_ranks: 'some' is not known"),
        ({"exit_code_policy": {1: "ignore"}}, r"exit_code_policy: 1: 'ignore' is not known"),
        ({"backend": "local", "wait_for_completion": False}, r"wait_for_completion: a local run ends with its worker"),
    ],
)
def test_an_invalid_parameter_fails_the_import_of_the_dag_file(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        train(**parameters)


@pytest.mark.parametrize("value", [90, "1m30s", timedelta(seconds=90)])
def test_a_duration_is_a_number_of_seconds_a_text_or_a_timedelta(value: Any) -> None:
    with DAG("nightly", schedule=None) as dag:
        task = train(deadline=value, startup_timeout=value, quiet_after=value, poll_interval=value)
        assert (task.startup_timeout, task.quiet_after, task.poll_interval) == (90, 90, 90)
        assert task.job_and_base()[0].deadline == 90
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_ids == ["train"]


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match="num_node"):
        train(num_node=2)


def test_the_fields_survive_serialisation() -> None:
    data = serialised()
    back = DagSerialization.from_dict(json.loads(json.dumps(data)))
    task = back.get_task("train")
    for name, value in NESTED.items():
        assert getattr(task, name) == value


def test_two_parses_of_a_file_serialise_identically_so_that_no_new_dag_version_is_created() -> None:
    assert json.dumps(serialised(), sort_keys=True) == json.dumps(serialised(), sort_keys=True)


def test_a_training_job_is_serialised_as_its_mapping() -> None:
    job = TrainingJob.model_validate({"script": "train.py", "num_nodes": 2})
    with DAG("with_job", schedule=None) as dag:
        DistributedTrainOperator(task_id="train", job=job)
    back = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    assert back.get_task("train").job == {"name": "train", "framework": "torch", "num_nodes": 2, "script": "train.py"}


def test_a_path_is_serialised_as_text() -> None:
    assert DistributedTrainOperator(task_id="train", job=Path("jobs/digits.yaml")).job == "jobs/digits.yaml"


def test_the_operator_can_be_mapped_over_a_field_and_the_mapping_is_serialised() -> None:
    with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        DistributedTrainOperator.partial(task_id="train", script="train.py", num_nodes=2).expand(
            args=[["--lr", "0.1"], ["--lr", "0.2"]]
        )
    back = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    task = back.get_task("train")
    assert task.is_mapped
    assert task.partial_kwargs["num_nodes"] == 2


def test_a_mapping_over_an_unknown_parameter_is_refused() -> None:
    with DAG("mapped", schedule=None), pytest.raises(TypeError, match="num_node"):
        DistributedTrainOperator.partial(task_id="train", num_node=2).expand(args=[["--lr", "0.1"]])


def serialised() -> Any:
    with DAG("round_trip", schedule=None, params={"nodes": 2, "epochs": 3}) as dag:
        DistributedTrainOperator(task_id="train", **NESTED)
    return DagSerialization.to_dict(dag)


def test_the_exception_of_a_failed_task_has_the_text_that_every_interface_shows() -> None:
    status = final("jobset_fails")
    *_, end, diagnosis = Presenter().see(status, 0.0)
    assert (type(end), type(diagnosis)) == (RunEnded, FirstFailure)
    assert str(train().failure(status, "fail")) == f"{end.text}\n{diagnosis.text}"
