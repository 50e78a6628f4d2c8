"""The operator, its mapped form and the decorator report invalid arguments when Airflow parses a DAG file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, task

from stepset_airflow import DistributedTrainOperator
from stepset_airflow.run.job_fields import ENTRIES, JOB_FIELDS

pytestmark = pytest.mark.airflow

Define = Callable[..., object]


@task
def prepare() -> int:
    return 2


def operator(**arguments: Any) -> object:
    return DistributedTrainOperator(task_id="train", **{"script": "train.py", **arguments})


def mapped(**arguments: Any) -> object:
    given = {"script": "train.py", **arguments}
    return DistributedTrainOperator.partial(task_id="train", **given).expand(queue_name=["a", "b"])


def decorated(**arguments: Any) -> object:
    @task.distributed_train(**arguments)
    def train() -> None: ...

    return train()


def mapped_decorated(**arguments: Any) -> object:
    @task.distributed_train(**arguments)
    def train(x: int) -> None: ...

    return train.expand(x=[1, 2])


EVERY_FORM = pytest.mark.parametrize("define", [operator, mapped, decorated, mapped_decorated])


def parse(define: Define, dag: dict[str, Any] | None = None, **arguments: Any) -> None:
    """Parses a DAG with one task."""
    with DAG("nightly", schedule=None, **(dag or {})):
        define(**arguments)


def problem(define: Define, error: type[Exception], **arguments: Any) -> str:
    with pytest.raises(error) as raised:
        parse(define, **arguments)
    return str(raised.value)


@EVERY_FORM
class TestValues:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"num_nodes": "two"}, "num_nodes: 'two' is not a whole number; give one such as 2"),
            ({"framework": "pytorch"}, "framework: unknown framework 'pytorch'; did you mean 'torch'?"),
            ({"checkpoint_dir": "ckpt"}, "checkpoint_dir: 'ckpt' is not an absolute path; start it with '/'"),
            ({"scheduling": {"queue": "a"}}, "scheduling: unknown key 'queue'; did you mean 'queue_name'?"),
            ({"target": "pod"}, "target: 'pod' is not known; use jobset, trainjob, statefulset, job, volcano"),
            ({"backend": "slurm"}, "backend: 'slurm' is not known; use local, kubernetes"),
            ({"on_kill_action": "stop"}, "on_kill_action: 'stop' is not known; use delete, suspend, keep"),
            (
                {"startup_timeout": timedelta(minutes=5)},
                "startup_timeout: datetime.timedelta(seconds=300) is not a number of seconds; give one such as 1800,"
                " or None for no limit",
            ),
            (
                {"exit_code_policy": ["skip"]},
                "exit_code_policy: ['skip'] is not a mapping; give one such as {42: 'skip'}",
            ),
            ({"poll_interval": 0}, "poll_interval: 0 is not a number of seconds; give one such as 10"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_an_invalid_value_is_one_line_with_dag_task_field_and_remedy(
        self, define: Define, arguments: dict[str, Any], expected: str
    ) -> None:
        assert problem(define, ValueError, **arguments) == f"DAG 'nightly', task 'train': {expected}"

    def test_each_problem_is_a_line(self, define: Define) -> None:
        lines = problem(define, ValueError, num_nodes=0, image="", on_kill_action="stop").splitlines()
        assert len(lines) == 3
        assert all(line.startswith("DAG 'nightly', task 'train': ") for line in lines)

    def test_a_field_with_a_template_is_not_validated(self, define: Define) -> None:
        for template in ("{{ params.n }}", "{% if true %}2{% endif %}", "{# none #}"):
            for field in set(JOB_FIELDS) - set(ENTRIES):
                parse(define, **{field: template})
                parse(define, **{field: {"a": [1, template]}})

    def test_other_fields_are_validated_beside_a_template(self, define: Define) -> None:
        found = problem(define, ValueError, args=["{{ run_id }}"], num_nodes="two")
        assert found.endswith("num_nodes: 'two' is not a whole number; give one such as 2")

    def test_the_result_of_another_task_is_not_validated(self, define: Define) -> None:
        with DAG("nightly", schedule=None):
            define(num_nodes=prepare(), args=["--data", prepare()])

    def test_the_result_of_another_task_in_a_parameter_that_is_not_templated_is_an_error(self, define: Define) -> None:
        for parameter in ("callbacks", "startup_timeout", "exit_code_policy"):
            with DAG("nightly", schedule=None), pytest.raises(ValueError, match="another task") as raised:
                define(**{parameter: prepare()})
            assert str(raised.value) == (
                f"DAG 'nightly', task 'train': {parameter}: the result of another task is possible in templated"
                " parameters only"
            )

    def test_the_delimiters_of_the_dag_s_templates_are_used(self, define: Define) -> None:
        dag = {"jinja_environment_kwargs": {"variable_start_string": "[["}}
        parse(define, dag, num_nodes="[[ params.n ]]")
        with pytest.raises(ValueError, match="num_nodes"):
            parse(define, dag, num_nodes="{{ params.n }}")

    def test_no_text_is_validated_if_the_dag_renders_it_to_a_python_object(self, define: Define) -> None:
        dag = {"render_template_as_native_obj": True}
        parse(define, dag, args="['--epochs', '3']")
        with pytest.raises(ValueError, match="num_nodes: 0 is too small"):
            parse(define, dag, num_nodes=0)


@EVERY_FORM
class TestNames:
    def test_an_unknown_parameter_is_one_line_that_names_the_nearest_one(self, define: Define) -> None:
        assert problem(define, TypeError, num_node=2) == (
            "DAG 'nightly', task 'train': num_node: unknown parameter; did you mean 'num_nodes'?"
        )

    def test_a_parameter_of_airflow_is_near_too(self, define: Define) -> None:
        assert "did you mean 'retries'?" in problem(define, TypeError, retrys=2)

    def test_a_parameter_like_no_other_is_to_be_removed(self, define: Define) -> None:
        assert problem(define, TypeError, zzz=1).endswith("zzz: unknown parameter; remove it")

    def test_a_parameter_of_kubernetes_pod_operator_names_ours(self, define: Define) -> None:
        assert problem(define, TypeError, env_vars={"LR": "0.1"}).startswith(
            "DAG 'nightly', task 'train': env_vars: a parameter of KubernetesPodOperator; write env={\"LR\": \"0.1\"}"
        )

    def test_a_parameter_of_kubernetes_pod_operator_without_an_equivalent_says_what_to_do(self, define: Define) -> None:
        found = problem(define, TypeError, get_logs=True)
        assert "get_logs: a parameter of KubernetesPodOperator that does not exist here; the task log shows" in found

    def test_default_args_may_contain_arguments_of_other_operators(self, define: Define) -> None:
        others = {"env_vars": {"A": "1"}, "get_logs": True, "num_node": 3, "bash_command": "true"}
        parse(define, {"default_args": others}, default_args={"cmds": ["true"]})

    def test_default_args_that_belong_to_the_operator_are_arguments(self, define: Define) -> None:
        parse(define, {"default_args": {"num_nodes": 3, "image": "train:1", "retries": 2}})

    def test_airflow_s_own_parameters_are_accepted(self, define: Define) -> None:
        own = {"retries": 2, "do_xcom_push": False, "pool": "gpus", "doc_md": "text", "trigger_rule": "all_done"}
        parse(define, params={"n": 1}, **own)


def test_a_task_in_a_group_has_its_full_name_in_errors() -> None:
    for define in (operator, mapped):
        with DAG("nightly", schedule=None), TaskGroup("sweep"), pytest.raises(ValueError, match="num_nodes") as raised:
            define(num_nodes=0)
        assert str(raised.value).startswith("DAG 'nightly', task 'sweep.train': num_nodes")


def test_without_a_dag_the_error_names_the_task() -> None:
    with pytest.raises(TypeError, match=r"^task 'train': num_node: unknown parameter"):
        operator(num_node=2)


def test_a_text_is_validated_when_the_dag_of_its_templates_is_known() -> None:
    @task.distributed_train(num_nodes="[[ params.n ]]")
    def train() -> None: ...

    with DAG("nightly", schedule=None, jinja_environment_kwargs={"variable_start_string": "[["}):
        train()
    with DAG("weekly", schedule=None), pytest.raises(ValueError, match=r"^DAG 'weekly', task 'train': num_nodes: "):
        train()


def test_names_in_expand_are_checked_too() -> None:
    with (
        DAG("nightly", schedule=None),
        pytest.raises(TypeError, match=r"^DAG 'nightly', task 'train': num_node: .*'num_nodes'"),
    ):
        DistributedTrainOperator.partial(task_id="train", script="train.py").expand(num_node=[1, 2])
    with DAG("nightly", schedule=None), pytest.raises(TypeError, match=r"^DAG 'nightly', task 'train': cmds: "):
        DistributedTrainOperator.partial(task_id="train", script="train.py").expand_kwargs([{"cmds": ["a"]}])


def test_mapped_values_are_not_validated_when_the_file_is_parsed() -> None:
    with DAG("nightly", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        DistributedTrainOperator.partial(task_id="train").expand_kwargs([{"script": "a.py", "num_nodes": "two"}])
        DistributedTrainOperator.partial(task_id="more", script="train.py").expand(num_nodes=["two"])


def test_a_subclass_may_have_parameters_of_its_own() -> None:
    class Train(DistributedTrainOperator):
        def __init__(self, *, team: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.team = team

    with DAG("nightly", schedule=None):
        Train(task_id="train", script="train.py", team="a")
        Train.partial(task_id="more", script="train.py", team="a").expand(num_nodes=[1])
        with pytest.raises(TypeError, match="did you mean 'team'"):
            Train(task_id="last", script="train.py", team="a", teams="b")


def test_an_override_of_a_decorated_function_is_checked() -> None:
    @task.distributed_train(num_nodes=2)
    def train() -> None: ...

    with DAG("nightly", schedule=None), pytest.raises(TypeError, match="task 'train': num_node: unknown"):
        train.override(num_node=3)()


def test_a_decorated_function_takes_no_other_program() -> None:
    assert problem(decorated, ValueError, script="train.py") == (
        "DAG 'nightly', task 'train': script: the decorated function is the program; leave script out"
    )


def test_fields_are_compared_if_none_is_templated() -> None:
    elastic = {"kind": "torch", "elastic": {"min_nodes": 4, "max_nodes": 8}}
    assert "num_nodes: 2 is outside framework.elastic's 4 to 8 nodes" in problem(
        operator, ValueError, framework=elastic, num_nodes=2
    )
    with DAG("nightly", schedule=None):
        operator(framework=elastic, num_nodes=2, args=["{{ ds }}"])


class TestJob:
    def job(self, tmp_path: Path, job: Any, **arguments: Any) -> object:
        with DAG("nightly", schedule=None) as dag:
            dag.fileloc = str(tmp_path / "dag_file.py")
            return DistributedTrainOperator(task_id="train", job=job, **arguments)

    def test_a_mapping_is_validated_with_the_fields_that_replace_its_own(self, tmp_path: Path) -> None:
        self.job(tmp_path, {"script": "train.py", "num_nodes": "two"}, num_nodes=2)
        with pytest.raises(ValueError, match="num_nodes: 'two' is not a whole number"):
            self.job(tmp_path, {"script": "train.py", "num_nodes": "two"})

    def test_a_field_of_a_mapping_with_a_template_is_not_validated(self, tmp_path: Path) -> None:
        self.job(tmp_path, {"script": "train.py", "num_nodes": "{{ params.n }}"})
        with pytest.raises(ValueError, match="unknown key 'num_node'; did you mean 'num_nodes'"):
            self.job(tmp_path, {"script": "train.py", "num_node": "{{ params.n }}"})

    def test_a_job_file_is_validated_if_it_exists(self, tmp_path: Path) -> None:
        self.job(tmp_path, "job.yaml")
        (tmp_path / "job.yaml").write_text("script: train.py\nnum_nodes: two\n")
        with pytest.raises(ValueError, match=r"task 'train': /.*/job.yaml: num_nodes: 'two' is not a whole number"):
            self.job(tmp_path, "job.yaml")
        self.job(tmp_path, "job.yaml", num_nodes=2)
        self.job(tmp_path, "{{ params.job }}")

    @pytest.mark.parametrize("path", ["a" * 300, "a\0b", "dag_file.py/job.yaml"], ids=["long", "nul", "below a file"])
    def test_an_unusable_path_is_an_error_when_the_task_runs(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "dag_file.py").write_text("")
        self.job(tmp_path, path)

    def test_a_job_file_that_is_not_yaml_is_an_error_of_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("script: [")
        with pytest.raises(ValueError, match=r"^DAG 'nightly', task 'train': /.*/job.yaml: ") as raised:
            self.job(tmp_path, "job.yaml")
        assert "\n" not in str(raised.value)

    def test_fields_beside_a_job_that_is_not_known_are_validated(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="num_nodes: 0 is too small"):
            self.job(tmp_path, "{{ params.job }}", num_nodes=0)

    def test_another_value_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="job: 5 is not known; give a mapping, the path of a job file"):
            self.job(tmp_path, 5)
