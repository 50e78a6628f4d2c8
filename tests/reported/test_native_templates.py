"""In a DAG with `render_template_as_native_obj=True`, texts of a task arrive as they were written.

Public reports are those about versions, hashes and numbers with leading zeros that Jinja's native environment converts:
apache/airflow discussions about `render_template_as_native_obj`, and pallets/jinja, `native_concat`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.airflow.conftest import RunDag, WriteDag, _remove_home, airflow_db, run_dag, stepset_home, write_dag

__all__ = ["_remove_home", "airflow_db", "run_dag", "stepset_home", "write_dag"]

pytestmark = pytest.mark.airflow

TEXTS = ["1.10", "12e5", "0x1f", "1_000", "None", "True", "'quoted'", "[1, 2]", "{'a': 1}", "(1,)", "", " 3", "b'x'"]
PARAMS: dict[str, Any] = {f"p{index}": text for index, text in enumerate(TEXTS)}
TEMPLATES = [f"{{{{ params.{name} }}}}" for name in PARAMS]


def rendered(
    arguments: dict[str, Any], params: dict[str, Any] | None = None, native: bool | None = None, **dag: Any
) -> Any:
    """Returns the operator with rendered fields."""
    from airflow.sdk import DAG

    from stepset_airflow import DistributedTrainOperator

    with DAG("nightly", schedule=None, render_template_as_native_obj=native is not True, **dag):
        task = DistributedTrainOperator(
            task_id="train",
            **({} if native is None else {"render_template_as_native_obj": native}),
            **{"image": "train:1", "command": ["true"], **arguments},
        )
    task.render_template_fields({"params": {**PARAMS, **(params or {})}})  # type: ignore[typeddict-item]  # a part
    return task


@pytest.mark.parametrize("native", [None, True])
@pytest.mark.parametrize("texts", [TEXTS, TEMPLATES], ids=["texts", "templates"])
def test_items_of_args_and_values_of_env_stay_texts(texts: list[str], native: bool | None) -> None:
    env = dict(zip(PARAMS, texts, strict=True))
    task = rendered({"args": texts, "env": env, "labels": env, "annotations": env}, native=native)
    assert task.args == TEXTS
    assert task.env == task.labels == task.annotations == PARAMS


@pytest.mark.parametrize("field", ["name", "image", "checkpoint_dir", "service_account", "queue_name", "namespace"])
@pytest.mark.parametrize("text", ["1.10", "12e5", "0x1f", "None"])
def test_a_field_that_is_a_text_stays_a_text(field: str, text: str) -> None:
    assert getattr(rendered({field: "{{ params.text }}"}, {"text": text}), field) == text


def test_numbers_in_args_become_the_text_that_jinja_renders() -> None:
    task = rendered(
        {"args": ["{{ params.n }}", "--lr={{ params.lr }}"], "env": {"N": "{{ params.n }}"}}, {"n": 3, "lr": 1e-5}
    )
    assert (task.args, task.env) == (["3", "--lr=1e-05"], {"N": "3"})


def test_whole_fields_become_objects() -> None:
    params = {"args": ["1.10", 2], "env": {"A": "1.10"}, "n": 2, "on": True, "none": None}
    task = rendered(
        {
            "args": "{{ params.args }}",
            "env": "{{ params.env }}",
            "num_nodes": "{{ params.n }}",
            "procs_per_node": "{{ params.n * 2 }}",
            "agent": "{{ params.on }}",
            "checkpoint_dir": "{{ params.none }}",
            "requirements": "['numpy', 'torch']",
            "resources_per_node": {"cpu": "{{ params.n }}"},
            "pod_template": {"spec": {"hostNetwork": "{{ params.on }}"}},
        },
        params,
    )
    assert (task.args, task.env, task.num_nodes, task.procs_per_node) == (["1.10", 2], {"A": "1.10"}, 2, 4)
    assert (task.agent, task.checkpoint_dir, task.requirements) == (True, None, ["numpy", "torch"])
    assert task.resources_per_node == {"cpu": 2}
    assert task.pod_template == {"spec": {"hostNetwork": True}}


def test_a_literal_is_accepted_if_only_the_task_renders_objects() -> None:
    assert rendered({"args": "['--a']"}, native=True).args == ["--a"]


def test_a_literal_is_rejected_if_only_the_task_renders_texts() -> None:
    with pytest.raises(ValueError, match="args: "):
        rendered({"args": "['--a']"}, native=False)


def test_texts_inside_other_fields_stay_texts() -> None:
    container = {"name": "node", "env": [{"name": "A", "value": "{{ params.n }}"}], "args": ["0x1f", "{{ params.n }}"]}
    task = rendered(
        {
            "framework": {"kind": "torch", "elastic": {"rdzv_id": "None"}},
            "scheduling": {"node_selector": {"zone": "1e5", "n": "{{ params.n }}"}},
            "pod_template": {"metadata": {"annotations": {"a": "[1]"}}, "spec": {"containers": [container]}},
            "roles": [{"name": "1e1", "args": ["1.10"], "command": "['a', '1.10']", "env": {"A": "True"}}],
        },
        {"n": 2},
    )
    assert task.framework["elastic"] == {"rdzv_id": "None"}
    assert task.scheduling == {"node_selector": {"zone": "1e5", "n": "2"}}
    assert task.pod_template["metadata"] == {"annotations": {"a": "[1]"}}
    assert task.pod_template["spec"]["containers"] == [
        {"name": "node", "env": [{"name": "A", "value": "2"}], "args": ["0x1f", "2"]}
    ]
    assert task.roles == [{"name": "1e1", "args": ["1.10"], "command": ["a", "1.10"], "env": {"A": "True"}}]


def test_the_fields_of_a_job_follow_the_same_rules() -> None:
    task = rendered({"job": {"name": "1e5", "args": ["1.10"], "env": "{{ params.env }}"}}, {"env": {"A": "0x1f"}})
    assert task.job == {"name": "1e5", "args": ["1.10"], "env": {"A": "0x1f"}}


def test_an_undefined_name_is_an_error() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError, match="'missing' is undefined"):
        rendered({"args": "{{ missing }}"})


def test_the_run_of_a_sensor_stays_a_text() -> None:
    from airflow.sdk import DAG

    from stepset_airflow import DistributedTrainSensor

    with DAG("nightly", schedule=None, render_template_as_native_obj=True):
        sensor = DistributedTrainSensor(task_id="wait", run_name="{{ params.run }}")
    sensor.render_template_fields({"params": {"run": "12e5"}})  # type: ignore[typeddict-item]  # a part of the context
    assert sensor.run_name == "12e5"


def test_texts_arrive_in_the_ranks_of_tasks_and_of_mapped_tasks(run_dag: RunDag, write_dag: WriteDag) -> None:
    script = """\
        import json, os, sys
        with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
            json.dump([sys.argv[1:], os.environ["VERSION"]], file)
    """
    fields = 'framework="plain", script="train.py", backend="local", env={"VERSION": "{{ params.version }}"}'
    tasks = f"""
        DistributedTrainOperator(task_id="one", args=["12e5", "{{{{ params.version }}}}"], {fields})
        DistributedTrainOperator.partial(task_id="mapped", {fields}).expand(args=[["0x1f", "{{{{ params.version }}}}"]])

        @task.distributed_train(framework="plain", backend="local", args=None, env={{"VERSION": "1.10"}})
        def fit(sizes):
            import os
            return [sizes, os.environ["VERSION"]]

        fit("{{{{ params.sizes }}}}")
    """
    run = run_dag(
        write_dag(tasks, script, dag='render_template_as_native_obj=True, params={"version": "1.10", "sizes": [1, 2]}')
    )
    assert run.state == "success", run.explained()
    assert run.xcom("one") == [["12e5", "1.10"], "1.10"]
    assert run.xcom("fit") == [[1, 2], "1.10"]
    assert run.xcom("mapped[0]", map_indexes=0) == [["0x1f", "1.10"], "1.10"]
