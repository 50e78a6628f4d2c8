"""The OpenLineage events of a training, through Airflow's OpenLineage provider and its file transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from stepset.hang import Hang, HangGroup, HangKind, StackFrame
from stepset.run_status import Phase, RunStatus
from tests.airflow.conftest import dag_folder
from tests.airflow.test_import import new_modules

pytestmark = [pytest.mark.airflow, pytest.mark.local]

EventsByType = dict[str, dict[str, Any]]
SECRET = "hunter2-is-no-good-password"
SCRIPT = """
    import json, os, sys, time
    if "fail" in sys.argv and os.environ["RANK"] == "1":
        sys.exit(7)
    if "fail" in sys.argv:
        time.sleep(600)
    print(json.dumps({"stepset": {"step": 3, "metrics": {"loss": 0.25}}}), flush=True)
    result = {"checkpoint": "s3://models/digits/7.pt", "parent": os.environ.get("OPENLINEAGE_PARENT_ID")}
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps(result))
"""


def train(task_id: str, more: str = "", **parameters: Any) -> str:
    given = {
        "task_id": task_id,
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


PARENT = {"OPENLINEAGE_PARENT_ID": "{{ macros.OpenLineageProviderPlugin.lineage_parent_id(task_instance) }}"}
DATA = "inlets=[Asset('s3://data/digits')]"
MODELS = "outlets=[Asset('file:///models/digits'), Asset('only_a_name')]"
TASKS = f"""
    {train("succeeds", f"{DATA}, {MODELS}", env={"PASSWORD": SECRET, **PARENT})}
    {train("fails", "outlets=[Asset('file:///models/digits')]", args=["fail"], checkpoint_dir="/models/unfinished")}

    @task(outlets=[Asset("lineage_model")])
    def promote(outlet_events=None):
        outlet_events[Asset("lineage_model")].extra = {{"checkpoint": "/models/last.pt"}}

    promote() >> {train("starts_warm", "warm_start=Asset('lineage_model')")}

    @task.distributed_train(framework="torch", num_nodes=1, procs_per_node=1, backend="local")
    def function():
        return {{"checkpoint": "/models/of/a/function"}}

    function()
"""
"""One DAG for all tests: OpenLineage is enabled per process, and importing Airflow takes seconds."""


@pytest.fixture(scope="module")
def events_by_task(airflow_db: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, EventsByType]:
    """Task -> event type -> the last such event, of a run with OpenLineage enabled."""
    directory = tmp_path_factory.mktemp("lineage")
    transport = {"type": "file", "log_file_path": str(directory / "events"), "append": True}
    variables = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport), "STEPSET_HOME": str(directory / "stepset")}
    with dag_folder("lineage") as write:
        done = subprocess.run(
            [sys.executable, write(TASKS, SCRIPT)],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert "ended as" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    text = (directory / "events").read_text()
    assert SECRET not in text
    found: dict[str, EventsByType] = {}
    for each in map(json.loads, text.splitlines()):
        found.setdefault(each["job"]["name"].rpartition(".")[2], {})[each["eventType"]] = each
    return found


def facet(event: dict[str, Any]) -> dict[str, Any]:
    """The run facet, without the fields that every facet has."""
    found = event["run"]["facets"]["stepset_training"]
    return {key: value for key, value in found.items() if not key.startswith("_")}


def places(event: dict[str, Any], which: str) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in event[which]]


def test_a_successful_training_reports_its_metrics_inputs_and_outputs(events_by_task: dict[str, EventsByType]) -> None:
    events = events_by_task["succeeds"]
    assert list(events) == ["START", "COMPLETE"]
    start, complete = events["START"], events["COMPLETE"]
    assert facet(start) == {"job": "digits", "framework": "torch", "numNodes": 2, "metrics": {}}
    ended = facet(complete)
    assert ended.pop("run").startswith("succeeds-")
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


def test_a_failed_training_reports_a_diagnosis_and_no_checkpoint(events_by_task: dict[str, EventsByType]) -> None:
    events = events_by_task["fails"]
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


def test_a_warm_start_is_an_input(events_by_task: dict[str, EventsByType]) -> None:
    assert places(events_by_task["starts_warm"]["COMPLETE"], "inputs") == [("file", "/models/last.pt")]


def test_a_decorated_function_is_reported_too(events_by_task: dict[str, EventsByType]) -> None:
    events = events_by_task["function"]
    assert "job" not in facet(events["START"])
    assert facet(events["COMPLETE"])["phase"] == "Succeeded"
    assert places(events["COMPLETE"], "outputs") == [("file", "/models/of/a/function")]


def test_the_operator_imports_nothing_of_openlineage() -> None:
    added = new_modules("from stepset_airflow import DistributedTrainOperator", "from airflow.sdk import DAG, task")
    assert "stepset_airflow.openlineage.mixin" in added
    assert not [name for name in added if name.startswith(("openlineage", "airflow.providers.openlineage"))]


def test_a_facet_contains_the_hang_that_preceded_a_failure() -> None:
    from stepset_airflow.openlineage.facets import training_facet

    blocks = HangGroup((1, 2, 3), "sleeping", True, frame=StackFrame("load", "/app/data.py", 17))
    hang = Hang(HangKind.MISSING, 690.0, 310.0, 12.0, groups=(HangGroup((0,), "collective"), blocks))
    facet = training_facet(None, RunStatus("digits-1", "digits", "kubernetes", Phase.FAILED, hang=hang))
    assert (facet.hangKind, facet.hangRanks, facet.hangPlace) == ("Missing", "ranks 1-3", "data.py:17")
