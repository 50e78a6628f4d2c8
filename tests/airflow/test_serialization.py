"""Tasks, sensors, policies and triggers survive Airflow's serialization."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.serialization.serialized_objects import BaseSerialization, DagSerialization
from airflow.triggers.base import BaseTrigger

from stepset_airflow import (
    DistributedTrainOperator,
    DistributedTrainSensor,
    JobSetFinishedEventTrigger,
    TrainingRetryPolicy,
)
from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.triggers.distributed_train import DistributedTrainTrigger
from stepset_airflow.triggers.run_end import RunEndTrigger

pytestmark = pytest.mark.airflow

ACCESS = ClusterAccess(kubernetes_conn_id="k8s", namespace="ml", cluster_context="a").to_dict()
WORKLOAD = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "target": "jobset",
    "metadata": {"name": "train-1", "uid": "u", "labels": {}, "annotations": {"stepset.dev/ranks": '{"node": [0, 1]}'}},
}
TRIGGERS: dict[str, BaseTrigger] = {
    "the operator's": DistributedTrainTrigger(
        ACCESS,
        WORKLOAD,
        sources=["rank 0"],
        ranks=[0],
        callbacks=["package.module.function"],
        admission_timeout=60.0,
        startup_timeout=1800,
        poll_interval=10,
        deadline=1.5e9,
        on_kill_action="suspend",
        position={"reported": {"phase": "Running", "notes": ["a note"]}, "printed": {"pod": {"last": "2026-01-01T00"}}},
    ),
    "the sensor's": RunEndTrigger("digits-1", target="trainjob", kubernetes_conn_id="k8s", namespace="ml"),
    "the asset watcher's": JobSetFinishedEventTrigger(job="digits", phases=["Failed"], namespace="ml"),
}


def round_trip(dag: DAG) -> Any:
    """A DAG as the scheduler deserializes it."""
    return DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
def test_a_trigger_survives_the_trigger_table(trigger: BaseTrigger) -> None:
    classpath, fields = trigger.serialize()
    stored = Trigger.encrypt_kwargs(fields)
    module, _, name = classpath.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**Trigger._decrypt_kwargs(stored))
    assert type(again) is type(trigger)
    assert again.serialize() == (classpath, fields)


def test_the_class_paths_of_triggers_are_stable_because_the_database_contains_them() -> None:
    assert {name: trigger.serialize()[0] for name, trigger in TRIGGERS.items()} == {
        "the operator's": "stepset_airflow.triggers.distributed_train.DistributedTrainTrigger",
        "the sensor's": "stepset_airflow.triggers.run_end.RunEndTrigger",
        "the asset watcher's": "stepset_airflow.triggers.jobset_finished.JobSetFinishedEventTrigger",
    }


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
def test_the_serialized_fields_of_a_trigger_are_plain_json(trigger: BaseTrigger) -> None:
    assert json.loads(json.dumps(trigger.serialize()[1])) == trigger.serialize()[1]


def test_a_sensor_keeps_its_fields_and_starts_from_its_trigger_if_so_configured() -> None:
    with DAG("waits", schedule=None) as dag:
        DistributedTrainSensor(task_id="plain", run_name="{{ ds }}", namespace="ml")
        DistributedTrainSensor(task_id="direct", run_name="digits-1", target="job", start_from_trigger=True)
    back = round_trip(dag)
    plain, direct = back.get_task("plain"), back.get_task("direct")
    assert (plain.run_name, plain.namespace, plain.start_from_trigger) == ("{{ ds }}", "ml", False)
    assert direct.start_from_trigger
    args = direct.start_trigger_args
    assert args.trigger_cls == "stepset_airflow.triggers.run_end.RunEndTrigger"
    assert RunEndTrigger(**BaseSerialization.deserialize(args.trigger_kwargs)).run_name == "digits-1"


def test_a_sensor_can_be_mapped() -> None:
    with DAG("waits", schedule=None) as dag:
        DistributedTrainSensor.partial(task_id="wait", namespace="ml").expand(run_name=["a", "b"])
    assert round_trip(dag).get_task("wait").partial_kwargs["namespace"] == "ml"


def test_a_retry_policy_and_the_inlet_of_a_warm_start_are_kept() -> None:
    policy, model = TrainingRetryPolicy(["Lost"], delay=5), Asset("model")
    with DAG("trains", schedule=None) as dag:
        DistributedTrainOperator(
            task_id="train", script="train.py", retry_policy=policy, warm_start=model, inlets=[Asset("data")]
        )
    data = DagSerialization.to_dict(dag)
    back = round_trip(dag).get_task("train")
    assert [inlet.name for inlet in back.inlets] == ["data", "model"]
    assert json.dumps(data).count("TrainingRetryPolicy") >= 1 or back.has_retry_policy


def test_a_decorated_function_keeps_its_parameters() -> None:
    with DAG("trains", schedule=None) as dag:

        @task.distributed_train(framework="torch", num_nodes=2, env={"LR": "0.1"})
        def fit(rate: float) -> None: ...

        fit(0.5)
    back = round_trip(dag).get_task("fit")
    assert (back.num_nodes, back.env, back.op_args) == (2, {"LR": "0.1"}, [0.5])
    assert back.operator_name == "@task.distributed_train"


def test_an_asset_that_watches_runs_keeps_its_watcher() -> None:
    trigger = TRIGGERS["the asset watcher's"]
    watcher = AssetWatcher(name="digits", trigger=trigger)  # type: ignore[arg-type]  # an event trigger
    with DAG("trained", schedule=[Asset("trained", watchers=[watcher])]) as dag:
        DistributedTrainOperator(task_id="train", script="train.py")
    (asset,) = [each for _, each in round_trip(dag).timetable.asset_condition.iter_assets()]
    (back,) = asset.watchers
    assert back.name == "digits"
    kept = back.trigger
    classpath, fields = trigger.serialize()
    assert (kept["classpath"], kept["kwargs"]) == (classpath, fields) if isinstance(kept, dict) else kept == trigger
