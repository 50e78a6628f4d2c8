"""A template that renders a whole list or mapping as text is answered with the way to pass the object itself.

Airflow renders `args="{{ ti.xcom_pull(task_ids='prepare') }}"` to the text "['--a', '1']". Public reports are those
about XComs of lists in the arguments of KubernetesPodOperator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.spec import parse_job
from stepset_airflow.run.job_fields import job_of
from tests.airflow.conftest import RunDag, WriteDag, _remove_home, airflow_db, run_dag, stepset_home, write_dag

__all__ = ["_remove_home", "airflow_db", "run_dag", "stepset_home", "write_dag"]

REMEDY = (
    "was rendered as text; give the result of the task itself (an XComArg), such as {0}=prepare() or"
    " {0}=prepare.output, or set render_template_as_native_obj=True in the DAG"
)


def refusal(fields: dict[str, Any], job: Any = None) -> str:
    with pytest.raises(BadInputError) as caught:
        job_of(job, fields, None, Path())
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "text", "kind"),
    [
        ("args", "['--a', '1']", "list"),
        ("args", '["--a", true]', "list"),
        ("args", "[]", "list"),
        ("command", "['python', 'a.py']", "list"),
        ("requirements", "['numpy']", "list"),
        ("env", "{'A': 'b'}", "mapping"),
        ("storage", "[{'path': '/data', 'claim': 'data'}]", "list"),
        ("resources_per_node", "{'cpu': 2}", "mapping"),
        ("framework", "{'kind': 'torch'}", "mapping"),
        ("labels", '{"a": "b"}', "mapping"),
    ],
)
def test_the_advice_names_the_result_of_the_task(field: str, text: str, kind: str) -> None:
    expected = f"{field}: the {kind} {text} {REMEDY.format(field)}"
    assert refusal({"script": "train.py", field: text}) == expected
    assert refusal({}, {"script": "train.py", field: text}) == f"job.{expected}"


def test_a_whole_job_and_roles_are_checked_too() -> None:
    job = "{'script': 'train.py'}"
    assert refusal({}, job) == f"job: the mapping {job} {REMEDY.format('job')}"
    roles = [{"name": "data", "args": "['a']"}]
    assert refusal({"script": "a.py", "roles": roles}) == f"roles[0].args: the list ['a'] {REMEDY.format('args')}"


@pytest.mark.parametrize("text", ["--a 1", "[a", "{{}", "(1, 2)"])
def test_other_texts_get_the_advice_of_a_job_file(text: str) -> None:
    assert refusal({"script": "train.py", "args": text}).startswith("args: ")
    assert "XComArg" not in refusal({"script": "train.py", "args": text})


@pytest.mark.parametrize("text", ["['--a', '1']", '["--a", "1"]', " ['--a', 1]"])
def test_a_job_file_gets_the_list_itself(text: str) -> None:
    with pytest.raises(BadInputError, match=r'is text, not a list; write \["--a", "1"\]$'):
        parse_job({"script": "train.py", "args": text})


@pytest.mark.airflow
def test_the_task_fails_with_the_advice(run_dag: RunDag, write_dag: WriteDag) -> None:
    run = run_dag(
        write_dag(
            """
            @task
            def prepare():
                return ["--a", "1"]

            text = "{{ ti.xcom_pull(task_ids='prepare') }}"
            prepare() >> DistributedTrainOperator(
                task_id="train", framework="plain", script="train.py", backend="local", args=text
            )
            """
        )
    )
    assert run.state == "failed"
    assert str(run.error) == f"args: the list ['--a', '1'] {REMEDY.format('args')}"
