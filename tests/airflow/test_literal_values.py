"""The filter `literal`: a value of a template reaches the process unchanged, on a cluster and in a local run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import DAG
from hypothesis import example, given
from hypothesis import strategies as st

import stepset
from stepset.plan.expand import expand
from stepset_airflow import DistributedTrainOperator
from stepset_airflow.native_templates import literal
from tests.airflow.conftest import RunDag, WriteDag

pytestmark = pytest.mark.airflow

VALUE = "$(API_TOKEN) $$(API_TOKEN) $$ $HOME {{ x }}"


@given(st.text() | st.text("$()A"))
@example(VALUE)
def test_the_replacement_of_kubernetes_restores_the_value(text: str) -> None:
    assert expand(literal(text), {"A": "secret", "API_TOKEN": "secret"}) == text


def rendered(arguments: dict[str, Any], native: bool, **dag: Any) -> DistributedTrainOperator:
    with DAG("nightly", schedule=None, render_template_as_native_obj=native, **dag):
        task = DistributedTrainOperator(task_id="train", framework="plain", image="a", **arguments)
    task.render_template_fields({"params": {"value": VALUE, "many": [VALUE, 3]}})  # type: ignore[typeddict-item]  # a part
    return task


@pytest.mark.parametrize("native", [False, True])
def test_the_manifest_contains_the_escaped_value(native: bool) -> None:
    task = rendered(
        {
            "command": ["echo", "{{ params.value | literal }}"],
            "env": {"NOTE": "{{ params.value | literal }}", "API_TOKEN": {"secret": "api", "key": "token"}},
        },
        native,
    )
    job = {"framework": "plain", "image": "a", "command": task.command, "env": task.env}
    (workload,) = [each for each in stepset.render(job) if each["kind"] == "JobSet"]
    text = json.dumps(workload)
    (container,) = workload["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert literal(VALUE) in text and f'"{VALUE}"' not in text
    (note,) = [each["value"] for each in container["env"] if each["name"] == "NOTE"]
    assert expand(note, {"API_TOKEN": "secret"}) == VALUE


def test_the_filter_changes_the_items_of_a_list() -> None:
    assert rendered({"command": "{{ params.many | literal }}"}, native=True).command == [literal(VALUE), 3]


def test_a_filter_of_the_dag_is_kept() -> None:
    task = rendered({"command": ["{{ params.value | literal }}"]}, False, user_defined_filters={"literal": len})
    assert task.command == [str(len(VALUE))]


@pytest.mark.local
def test_the_process_of_a_local_run_gets_the_value(write_dag: WriteDag, run_dag: RunDag) -> None:
    path = write_dag(
        f"""
        DistributedTrainOperator(
            task_id="train", backend="local", framework="plain", script="train.py", env={{"API_TOKEN": "secret"}},
            params={{"value": {VALUE.replace("{{ x }}", "")!r}}}, args=["{{{{ params.value | literal }}}}"])
        """,
        script="""
        import json, os, sys
        json.dump({"value": sys.argv[1]}, open(os.environ["STEPSET_RESULT_FILE"], "w"))
        """,
    )
    run = run_dag(path)
    assert run.xcom("train") == {"value": VALUE.replace("{{ x }}", "")}, run.explained()
