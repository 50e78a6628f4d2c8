"""The operator, its mapped form and the decorator report invalid arguments when Airflow parses a DAG file."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, task

from stepset.defaults import ENTRIES, JOB_FIELDS
from stepset_airflow import DistributedTrainOperator
from tests.airflow.conftest import RunDag, WriteDag

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
            (
                {"checkpoint_dir": "ckpt/{{ run_id }}"},
                "checkpoint_dir: 'ckpt/{{ run_id }}' is not an absolute path; start it with '/'",
            ),
            ({"scheduling": {"queue": "a"}}, "scheduling: unknown key 'queue'; did you mean 'queue_name'?"),
            ({"target": "pod"}, "target: 'pod' is not known; use jobset, trainjob, statefulset, job, volcano"),
            ({"backend": "slurm"}, "backend: 'slurm' is not known; use local, kubernetes"),
            ({"on_kill_action": "stop"}, "on_kill_action: 'stop' is not known; use delete, suspend, keep"),
            (
                {"on_finish_action": "delete_succeeded_pod"},
                "on_finish_action: 'delete_succeeded_pod' is not known; did you mean 'delete_succeeded'? use keep,"
                " delete, delete_succeeded",
            ),
            ({"framework": "torchrun"}, "framework: unknown framework 'torchrun'; did you mean 'torch'?"),
            ({"on_orphan": "delete"}, "on_orphan: 'delete' is not known; use keep, stop"),
            (
                {"on_orphan": "stop", "durable": True, "on_kill_action": "keep"},
                "on_orphan: stop requires durable=False, on_kill_action delete or suspend, because nothing in the"
                " Kubernetes API shows that no other process will continue the run; leave on_orphan out",
            ),
            (
                {"on_orphan": "stop", "durable": False, "deferrable": True},
                "on_orphan: stop requires deferrable=False, because nothing in the Kubernetes API shows that no other"
                " process will continue the run; leave on_orphan out",
            ),
            (
                {"startup_timeout": "soon"},
                "startup_timeout: 'soon' is not a positive duration; give a number of seconds such as 1800, text such"
                " as '5m', or a timedelta, or None for no limit",
            ),
            (
                {"exit_code_policy": ["skip"]},
                "exit_code_policy: ['skip'] is not a mapping; give one such as {42: 'skip'}",
            ),
            (
                {"exit_code_policy": {"UserErr": "fail"}},
                "exit_code_policy: 'UserErr' is neither an exit code, a signal nor a kind of failure; did you mean"
                " 'UserError'?",
            ),
            ({"warm_start": "model"}, "warm_start: 'model' is not an asset; give one such as Asset('model')"),
            (
                {"poll_interval": 0},
                "poll_interval: 0 is not a positive duration; give a number of seconds such as 10, text such"
                " as '5m', or a timedelta",
            ),
            ({"deadline": timedelta(-1)}, "deadline: -86400 is not a positive duration; give at least 1s"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_an_invalid_value_is_one_line_with_dag_task_field_and_remedy(
        self, define: Define, arguments: dict[str, Any], expected: str
    ) -> None:
        assert problem(define, ValueError, **arguments) == f"DAG 'nightly', task 'train': {expected}"

    def test_a_run_that_only_its_worker_continues_may_end_with_the_worker(self, define: Define) -> None:
        parse(define, on_orphan="stop", durable=False)

    def test_a_duration_may_be_text_or_a_timedelta(self, define: Define) -> None:
        for value in (90, "1m30s", timedelta(seconds=90)):
            parse(
                define, **dict.fromkeys(("deadline", "ttl", "startup_timeout", "quiet_after", "poll_interval"), value)
            )

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

    @pytest.mark.parametrize(
        ("parameter", "value"),
        [
            ("log_ranks", "{{ params.ranks }}"),
            ("startup_timeout", "{{ params.seconds }}"),
            ("exit_code_policy", {"{{ params.code }}": "skip"}),
            ("deferrable", "{{ params.deferrable }}"),
            ("wait_for_completion", "{% if true %}1{% endif %}"),
        ],
    )
    def test_a_template_in_a_parameter_that_is_not_templated_is_an_error(
        self, define: Define, parameter: str, value: object
    ) -> None:
        assert problem(define, ValueError, **{parameter: value}) == (
            f"DAG 'nightly', task 'train': {parameter}: this parameter is not templated; give a value without a"
            " template"
        )

    def test_the_delimiters_of_the_dag_s_templates_are_used(self, define: Define) -> None:
        dag = {"jinja_environment_kwargs": {"variable_start_string": "[[", "variable_end_string": "]]"}}
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

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("environment", "did you mean 'env'?"),
            ("bash_command", 'write command=["bash", "-c", "..."]'),
            ("timeout", "did you mean 'deadline', which limits the run, or 'execution_timeout', which limits the try?"),
            ("gpus", 'write for example resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}'),
            ("cpu", 'write for example resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}'),
        ],
    )
    def test_a_parameter_that_has_another_name_here_is_suggested(self, define: Define, name: str, hint: str) -> None:
        assert problem(define, TypeError, **{name: 2}).endswith(f"{name}: unknown parameter; {hint}")

    def test_a_function_belongs_in_the_decorator(self, define: Define) -> None:
        if define not in (decorated, mapped_decorated):  # the decorators have this parameter
            found = problem(define, TypeError, python_callable=print)
            assert found.endswith("unknown parameter; decorate the function with @task.distributed_train instead")

    def test_a_parameter_like_no_other_may_be_an_argument_of_the_training_code(self, define: Define) -> None:
        for value, shown in ((3, "3"), (0.1, "0.1"), ("hf_0123", "..."), (True, "...")):
            place = f'training code belongs in args, such as args=["--zzz", "{shown}"]'
            if define in (decorated, mapped_decorated):
                place = "function belongs in the call of the function"
            found = problem(define, TypeError, zzz=value)
            assert found.endswith(f"zzz: unknown parameter; remove it; an argument of the {place}"), found

    def test_a_parameter_of_kubernetes_pod_operator_names_ours(self, define: Define) -> None:
        assert problem(define, TypeError, env_vars={"LR": "0.1"}).startswith(
            "DAG 'nightly', task 'train': env_vars: a parameter of KubernetesPodOperator; write env={\"LR\": \"0.1\"}"
        )

    def test_a_parameter_of_kubernetes_pod_operator_without_an_equivalent_says_what_to_do(self, define: Define) -> None:
        found = problem(define, TypeError, get_logs=True)
        assert "get_logs: a parameter of KubernetesPodOperator that does not exist here; remove this parameter" in found

    @pytest.mark.parametrize(
        ("resources", "written"),
        [
            ({"cpu": 8, "gpus": 2}, 'write resources_per_node={"cpu": 8, "gpus": 2}: '),
            ({"gpus": 2}, 'write resources_per_node={"gpus": 2}: '),
            ({"cpus": 8, "ram": 512}, 'write for example resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}: '),
        ],
    )
    def test_the_resources_of_base_operator_are_an_error(
        self, define: Define, resources: dict[str, int], written: str
    ) -> None:
        assert problem(define, TypeError, resources=resources) == (
            f"DAG 'nightly', task 'train': resources: a parameter of BaseOperator; {written}Airflow does not pass"
            " resources= to the pods"
        )

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

    with DAG(
        "nightly", schedule=None, jinja_environment_kwargs={"variable_start_string": "[[", "variable_end_string": "]]"}
    ):
        train()
    with DAG("weekly", schedule=None), pytest.raises(ValueError, match=r"^DAG 'weekly', task 'train': num_nodes: "):
        train()


def test_names_in_expand_are_checked_too() -> None:
    with (
        DAG("nightly", schedule=None),
        pytest.raises(TypeError, match=r"^DAG 'nightly', task 'train': num_node: .*'num_nodes'"),
    ):
        DistributedTrainOperator.partial(task_id="train", script="train.py").expand(num_node=[1, 2])
    with DAG("nightly", schedule=None), pytest.raises(TypeError, match=r"task 'train': lr: ") as raised:
        DistributedTrainOperator.partial(task_id="train", script="train.py").expand(lr=[0.1, 0.01])
    assert str(raised.value).endswith(
        "lr: unknown parameter; for an argument of the training code, map args, such as"
        ' expand(args=[["--lr", "0.1"], ["--lr", "0.01"]])'
    )
    with (
        DAG("nightly", schedule=None),
        pytest.raises(TypeError, match=r"^DAG 'nightly', task 'train', element 0: cmds: "),
    ):
        DistributedTrainOperator.partial(task_id="train", script="train.py").expand_kwargs([{"cmds": ["a"]}])


def test_the_values_in_lists_of_a_mapped_task_are_checked_too() -> None:
    train = DistributedTrainOperator.partial
    for maps, expected in (
        (
            lambda: train(task_id="train", script="train.py").expand(args=["--lr", "0.1"]),
            "element 0: args: each element of the list in expand is the value of one task instance, and '--lr' is text,"
            ' not a list; write args=[["--lr", "0.1"], ...]',
        ),
        (
            lambda: train(task_id="train", script="train.py").expand(args=["--lr 0.1", "--lr 0.2"]),
            "element 0: args: each element of the list in expand is the value of one task instance, and '--lr 0.1' is"
            ' text, not a list; write args=[["--lr", "0.1"], ["--lr", "0.2"]]',
        ),
        (
            lambda: train(task_id="train", script="train.py").expand(num_nodes=[1, "two"], args=[["--lr"]]),
            "element 1: num_nodes: 'two' is not a whole number; give one such as 2",
        ),
        (
            lambda: train(task_id="train").expand_kwargs([{"script": "a.py"}, {"script": "a.py", "num_nodes": 0}]),
            "element 1: num_nodes: 0 is too small; give 1 or more",
        ),
        (
            lambda: train(task_id="train", script="a.py").expand_kwargs([{"num_nodes": 0}, {"num_node": 2}]),
            "element 0: num_nodes: 0 is too small; give 1 or more\n"
            "DAG 'nightly', task 'train', element 1: num_node: unknown parameter; did you mean 'num_nodes'?",
        ),
    ):
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="task 'train'") as raised:
            maps()
        assert str(raised.value) == f"DAG 'nightly', task 'train', {expected}"


@pytest.mark.parametrize("define", [operator, mapped])
def test_an_argument_that_is_an_option_and_its_value_causes_a_warning(define: Define) -> None:
    warning = "args[0]: '--lr' and its value are one argument; write them as two items of the list"
    with pytest.warns(UserWarning, match=re.escape(f"DAG 'nightly', task 'train': {warning}")):
        parse(define, args=["--lr {{ params.lr }}", "--name=a b"])
    parse(define, args=["--lr={{ params.lr }} 1", "- a"])


@pytest.mark.parametrize("path", ["/ckpt", "/ckpt/", "/ckpt/{{ run_id | replace(':', '_') }}"])
def test_a_checkpoint_dir_that_all_mapped_instances_share_is_an_error(path: str) -> None:
    for given in ({"checkpoint_dir": path}, {"job": {"checkpoint_dir": path}}):
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="would share") as raised:
            DistributedTrainOperator.partial(task_id="train", script="train.py", **given).expand(args=prepare())
        assert str(raised.value) == (
            f"DAG 'nightly', task 'train': checkpoint_dir: the instances of the mapped task would share {path}, and"
            f" continue from each other's checkpoints; write {path.rstrip('/')}/{{{{ ti.map_index }}}}"
        )


def test_a_checkpoint_dir_that_may_differ_between_mapped_instances_is_accepted() -> None:
    train = DistributedTrainOperator.partial
    with DAG("nightly", schedule=None):
        train(task_id="a", script="a.py").expand(checkpoint_dir=["/ckpt/a", "/ckpt/b"])
        for index, path in enumerate(
            ("/{{ ti.map_index }}", "/{{ run_id }}/{{ task.args[1] }}", "/{{ macros.uuid() }}")
        ):
            train(task_id=f"b{index}", script="a.py", checkpoint_dir=path).expand(args=[["1"], ["2"]])
        train(task_id="c", script="a.py", checkpoint_dir=prepare()).expand(args=[["1"], ["2"]])
        train(task_id="d", script="a.py", checkpoint_dir="/ckpt").expand(args=[["1"]])
        train(task_id="e", script="a.py", checkpoint_dir="/ckpt", max_active_tis_per_dagrun=1).expand(args=[["1"], []])


@EVERY_FORM
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ params.steps }", "unexpected '}'"),
        ("{{ ds | nofilter }}", "No filter named 'nofilter'."),
        ("{{ ds | literal }}", ""),
        ("{{ ds | own }}", ""),
    ],
)
def test_a_template_that_jinja_cannot_compile_is_an_error(define: Define, text: str, expected: str) -> None:
    with DAG("nightly", schedule=None, user_defined_filters={"own": str}):
        if not expected:
            define(args=[text])
            return
        with pytest.raises(ValueError, match="is not a valid template") as raised:
            define(args=["--steps", text])
    assert str(raised.value) == f"DAG 'nightly', task 'train': args: {text!r} is not a valid template: {expected}"


def test_arguments_of_other_operators_have_remedies_that_do_not_contradict_each_other() -> None:
    lines = problem(operator, TypeError, script=None, python_callable=print, op_kwargs={}).splitlines()
    assert [line.removeprefix("DAG 'nightly', task 'train': ") for line in lines] == [
        "python_callable: unknown parameter; decorate the function with @task.distributed_train instead",
        "op_kwargs: unknown parameter; pass the arguments in the call of the decorated function",
    ]
    assert problem(operator, ValueError, job={"num_node": 2}) == (
        "DAG 'nightly', task 'train': job: unknown key 'num_node'; did you mean 'num_nodes'?"
    )


def test_mapped_values_that_are_not_known_are_not_validated_when_the_file_is_parsed() -> None:
    with DAG("nightly", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        train = DistributedTrainOperator.partial
        train(task_id="train").expand_kwargs([{"script": "a.py", "num_nodes": "{{ params.n }}", "args": prepare()}])
        train(task_id="more", script="train.py").expand(num_nodes=prepare())
        train(task_id="last", script="train.py").expand(args=[["--lr", "0.1"], prepare(), "{{ params.args }}"])


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


RATE = 0.1


@pytest.mark.parametrize("maps", [False, True])
def test_a_decorated_function_that_uses_names_of_the_dag_file_is_an_error(maps: bool) -> None:
    with DAG("nightly", schedule=None), pytest.raises(ValueError, match="train uses") as raised:

        @task.distributed_train(num_nodes=2, image="train:1")
        def train(epochs: int, since: datetime | None = None) -> float:
            return epochs * RATE + timedelta(hours=1).total_seconds()

        train.expand(epochs=[1]) if maps else train(1)
    start, _, message = str(raised.value).partition(": ")
    assert re.fullmatch(r"DAG 'nightly', task 'train', test_parsing\.py:\d+", start)
    assert message == (
        "function: train uses RATE, timedelta from outside, and only its own source is shipped;"
        " add 'from datetime import timedelta' inside train; import or define RATE inside train, or pass RATE as"
        " arguments of the task"
    )


def test_a_decorated_function_with_its_own_imports_is_accepted() -> None:
    with DAG("nightly", schedule=None):

        @task.distributed_train(num_nodes=2, image="train:1")
        def train(epochs: int) -> float:
            from datetime import timedelta

            return epochs * timedelta(hours=1).total_seconds()

        train(1)


def test_a_function_in_the_place_of_a_program_is_an_error_that_names_the_parameter() -> None:
    def train() -> None: ...

    line = "DAG 'nightly', task 'train': function: "
    assert problem(operator, ValueError, script=None, function="train.py") == (
        f"{line}'train.py' is the path of a file; give it as script instead"
    )
    assert problem(operator, ValueError, script=None, function=train) == (
        f"{line}train is a Python function, and this parameter is the source text of a program; decorate train with"
        " @task.distributed_train and leave the operator out, or give script"
    )


@pytest.mark.parametrize(
    ("ranks", "arguments", "found"),
    [
        (4, {}, "the job has no rank 4; it has ranks 0 to 3"),
        ([0, 7, 5], {}, "the job has no rank 5; it has ranks 0 to 3"),
        ("0,4", {"args": ["{{ ds }}"]}, "the job has no rank 4; it has ranks 0 to 3"),
        (1, {"framework": "plain", "num_nodes": 1, "procs_per_node": 1}, "the job has no rank 1; it has rank 0 alone"),
        (-1, {}, "-1 is not known; use all, failed, or ranks such as 0,1"),
        ([0, -1], {}, "[0, -1] is not known; use all, failed, or ranks such as 0,1"),
        (
            16,
            {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 8}}},
            "the job has no rank 16; it has ranks 0 to 15",
        ),
    ],
)
def test_a_rank_that_the_job_does_not_have_is_an_error(ranks: object, arguments: dict[str, Any], found: str) -> None:
    given = {"num_nodes": 2, "procs_per_node": 2, **arguments}
    assert problem(operator, ValueError, log_ranks=ranks, **given) == f"DAG 'nightly', task 'train': log_ranks: {found}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"log_ranks": [0, 3], "procs_per_node": 2},
        {"log_ranks": "all"},
        {"log_ranks": "failed"},
        {"log_ranks": 15, "framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 8}}},
        {"log_ranks": 7, "num_nodes": "{{ params.n }}"},
        {"log_ranks": 7, "script": None, "framework": "plain", "command": ["torchrun", "--nproc-per-node=8", "a.py"]},
        {"log_ranks": 7, "resources_per_node": {"gpus": 4}, "procs_per_node": "auto"},
    ],
)
def test_a_rank_that_the_job_may_have_is_accepted(arguments: dict[str, Any]) -> None:
    parse(operator, **{"num_nodes": 2, "procs_per_node": 2, **arguments})


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


def test_a_launcher_that_contradicts_the_job_is_an_error() -> None:
    job: dict[str, Any] = {"command": ["torchrun", "--nnodes=1", "train.py"], "num_nodes": 4}
    found = "command: --nnodes=1 of torchrun contradicts num_nodes: 4; remove it, because stepset sets it, or set"
    templated: dict[str, Any] = {"args": ["{{ run_id }}"], "env": {"A": "{{ ds }}"}}
    for more in ({}, templated):
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match=found):
            DistributedTrainOperator(task_id="train", **job, **more)
    with DAG("nightly", schedule=None):
        DistributedTrainOperator(task_id="templated", **{**job, "num_nodes": "{{ params.n }}"})
        DistributedTrainOperator.partial(task_id="mapped", command=job["command"]).expand(num_nodes=[1])


@pytest.mark.local
def test_resources_in_default_args_do_not_fail_a_mapped_task(write_dag: WriteDag, run_dag: RunDag) -> None:
    tasks = """
    DistributedTrainOperator.partial(
        task_id="train", framework="plain", backend="local", function="print(1)"
    ).expand(args=[["a"]])
    DistributedTrainSensor.partial(
        task_id="wait", backend="local", timeout=0.1, poke_interval=0.1, soft_fail=True
    ).expand(run_name=["none"])
    """
    imports = "from stepset_airflow import DistributedTrainSensor"
    run = run_dag(write_dag(tasks, imports=imports, dag='default_args={"resources": {"cpus": 1}}'))
    assert run.task_state("train[0]") == "success", run.explained()
    assert run.task_state("wait[0]") == "skipped", run.explained()
