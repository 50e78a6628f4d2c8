"""What OpenLineage is told of a training, through Airflow's own OpenLineage provider and its file transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import WriteDag
from tests.airflow.test_import import new_modules

pytestmark = [pytest.mark.airflow, pytest.mark.local]

Told = dict[str, dict[str, Any]]
SECRET = "hunter2-is-no-good-password"
TRAINS = """
    import json, os
    print(json.dumps({"stepset": {"step": 3, "metrics": {"loss": 0.25}}}), flush=True)
    result = {"checkpoint": "s3://models/digits/7.pt", "parent": os.environ.get("OPENLINEAGE_PARENT_ID")}
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps(result))
"""
RANK_1_FAILS = """
    import os, sys, time
    if os.environ["RANK"] == "1":
        sys.exit(7)
    time.sleep(600)
"""


@pytest.fixture
def told(airflow_db: None, stepset_home: Path, tmp_path: Path) -> Callable[[Path], Told]:
    """Runs a DAG file with OpenLineage switched on: the last event of each state of its task `train`."""

    def run(path: Path) -> Told:
        events = tmp_path / "events"
        transport = {"type": "file", "log_file_path": str(events), "append": True}
        env = {**os.environ, "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport)}
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=300)
        assert "ended as" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
        text = events.read_text()
        assert SECRET not in text
        lines = [json.loads(line) for line in text.splitlines()]
        return {each["eventType"]: each for each in lines if each["job"]["name"].endswith(".train")}

    return run


def train(more: str = "", **parameters: Any) -> str:
    given = {
        "task_id": "train",
        "name": "digits",
        "framework": {"kind": "torch", "launcher": "none"},
        "num_nodes": 2,
        "procs_per_node": 1,
        "backend": "local",
        "script": "train.py",
        "args": ["--password", SECRET],
        "env": {"PASSWORD": SECRET},
        **parameters,
    }
    return f"DistributedTrainOperator({', '.join(f'{name}={value!r}' for name, value in given.items())}, {more})"


def facet(event: dict[str, Any]) -> dict[str, Any]:
    """The run facet, without what every facet has."""
    found = event["run"]["facets"]["stepset_training"]
    return {key: value for key, value in found.items() if not key.startswith("_")}


def places(event: dict[str, Any], which: str) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in event[which]]


def test_a_training_that_succeeds(write_dag: WriteDag, told: Callable[[Path], Told]) -> None:
    data, model = "inlets=[Asset('s3://data/digits')]", "outlets=[Asset('file:///models/digits'), Asset('only_a_name')]"
    parent = {"OPENLINEAGE_PARENT_ID": "{{ macros.OpenLineageProviderPlugin.lineage_parent_id(task_instance) }}"}
    path = write_dag(train(f"{data}, {model}", env={"PASSWORD": SECRET, **parent}), TRAINS)
    events = told(path)
    assert list(events) == ["START", "COMPLETE"]
    start, complete = events["START"], events["COMPLETE"]
    assert facet(start) == {"job": "digits", "framework": "torch", "numNodes": 2, "metrics": {}}
    ended = facet(complete)
    assert ended.pop("run").startswith("train-")
    assert ended == {
        "job": "digits",
        "framework": "torch",
        "numNodes": 2,
        "worldSize": 2,
        "attempt": 0,
        "phase": "Succeeded",
        "metrics": {"loss": 0.25},
    }
    assert places(start, "inputs") == places(complete, "inputs") == [("s3://data", "digits")]
    assert places(start, "outputs") == [("file", "/models/digits")]
    assert places(complete, "outputs") == [("file", "/models/digits"), ("s3://models", "digits/7.pt")]


def test_a_training_that_fails_leaves_a_diagnosis_and_no_checkpoint(
    write_dag: WriteDag, told: Callable[[Path], Told]
) -> None:
    outlet = "outlets=[Asset('file:///models/digits')]"
    events = told(write_dag(train(outlet, checkpoint_dir="/models/unfinished"), RANK_1_FAILS))
    assert list(events) == ["START", "FAIL"]
    failed = facet(events["FAIL"])
    assert (failed["phase"], failed["failureKind"], failed["failureRank"], failed["exitCode"]) == (
        "Failed",
        "UserError",
        1,
        7,
    )
    assert places(events["FAIL"], "outputs") == [("file", "/models/digits")]
    assert "rank 1" in events["FAIL"]["run"]["facets"]["errorMessage"]["message"]


def test_a_warm_start_is_an_input(write_dag: WriteDag, told: Callable[[Path], Told]) -> None:
    tasks = f"""
        @task(outlets=[Asset("lineage_model")])
        def promote(outlet_events=None):
            outlet_events[Asset("lineage_model")].extra = {{"checkpoint": "/models/last.pt"}}

        promote() >> {train("warm_start=Asset('lineage_model')")}
    """
    assert places(told(write_dag(tasks, TRAINS))["COMPLETE"], "inputs") == [("file", "/models/last.pt")]


def test_a_decorated_function_is_told_of_too(write_dag: WriteDag, told: Callable[[Path], Told]) -> None:
    tasks = """
        @task.distributed_train(framework="torch", num_nodes=1, procs_per_node=1, backend="local")
        def train():
            return {"checkpoint": "/models/of/a/function"}

        train()
    """
    events = told(write_dag(tasks))
    assert "job" not in facet(events["START"])
    assert facet(events["COMPLETE"])["phase"] == "Succeeded"
    assert places(events["COMPLETE"], "outputs") == [("file", "/models/of/a/function")]


def test_without_openlineage_nothing_of_it_is_imported() -> None:
    added = new_modules("from stepset_airflow import DistributedTrainOperator", "from airflow.sdk import DAG, task")
    assert "stepset_airflow.openlineage" in added
    assert not [name for name in added if name.startswith(("openlineage", "airflow.providers.openlineage"))]
