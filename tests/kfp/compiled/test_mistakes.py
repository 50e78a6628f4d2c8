"""Typical mistakes in a pipeline are errors of one line with the remedy when the pipeline is compiled."""

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl

from stepset.errors import BadInputError
from stepset_kfp import cleanup_training, distribute, distributed_train, wait_for_training

JOB = {"framework": "torch", "num_nodes": 2, "procs_per_node": 2, "module": "train", "image": "registry.example/a:1"}
PLACE = "task distributed-train: "


@dsl.component(base_image="registry.example/own:1")
def prepare(data: dsl.Output[dsl.Dataset]) -> str:
    return data.path


def train() -> None: ...


def problem(tmp_path: Path, define: Callable[..., Any]) -> str:
    """Returns the error with which the compilation of a pipeline ends."""

    def pipeline(n: int = 2, word: str = "x") -> None:
        define(prepare(), n, word)

    with pytest.raises(BadInputError) as raised:  # KFP calls the function when it creates the pipeline
        compiler.Compiler().compile(dsl.pipeline(name="mistakes")(pipeline), str(tmp_path / "pipeline.yaml"))
    return str(raised.value)


@pytest.mark.parametrize(
    ("place", "inputs"),
    [
        ("args.1", lambda task: {"args": ["--data", task]}),
        ("env.DATA", lambda task: {"env": {"DATA": task}}),
        ("checkpoint_dir", lambda task: {"checkpoint_dir": task}),
        ("job.args.0", lambda task: {"job": {"args": [task]}}),
    ],
)
def test_a_task_in_the_place_of_its_output(
    tmp_path: Path, place: str, inputs: Callable[[object], dict[str, Any]]
) -> None:
    assert problem(tmp_path, lambda task, *_: distributed_train(**JOB, **inputs(task))) == (
        f'{PLACE}{place}: prepare is a task; give one of its output parameters: .outputs["Output"]'
    )


def test_a_task_in_a_text(tmp_path: Path) -> None:
    found = problem(tmp_path, lambda task, *_: distributed_train(**JOB, args=[f"--data={task}"]))
    assert found.startswith(f"{PLACE}args.0: the text contains a task; write one of its outputs into the text")


@pytest.mark.parametrize(
    ("place", "inputs"),
    [
        ("args.1: ", lambda data: {"args": ["--data", data]}),
        ("args.0: ", lambda data: {"args": [f"--data={data}"]}),
        ("env.DATA: ", lambda data: {"env": {"DATA": f"{data}"}}),
        ("data: no such input; ", lambda data: {"data": data}),
    ],
)
def test_an_artifact_in_the_place_of_a_path(
    tmp_path: Path, place: str, inputs: Callable[[object], dict[str, Any]]
) -> None:
    found = problem(tmp_path, lambda task, *_: distributed_train(**JOB, **inputs(task.outputs["data"])))
    assert found == (
        f"{PLACE}{place}data is an artifact, which has no text; add a task that copies the artifact to the workspace,"
        " return the path from this task and pass it in args (docs/kfp.md, Data from an artifact), or use distribute,"
        " whose function can have artifacts as inputs"
    )


@pytest.mark.parametrize("name", ["function", "script"])
def test_a_component_or_a_function_in_the_place_of_a_program(tmp_path: Path, name: str) -> None:
    job = {**JOB, "module": None}
    component = problem(tmp_path, lambda *_: distributed_train(**job, **{name: prepare}))
    assert component.startswith(f"{PLACE}{name}: prepare is a component; to run its function in every rank, use distr")
    function = problem(tmp_path, lambda *_: distributed_train(**job, **{name: train}))
    assert "train is a Python function; to run it in every rank, decorate it with @dsl.component" in function
    assert "distribute(train, ...)" in function


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"resources_per_node": "gpus: 2"}, f"{PLACE}resources_per_node: 'gpus: 2' is not a mapping; write {{cpu:"),
        ({"scheduling": "gpu", "queue_name": "a"}, f"{PLACE}scheduling: 'gpu' is not a mapping; write {{queue"),
        ({"startup_timeout": "1h"}, f"{PLACE}startup_timeout: '1h' is not a number; give seconds, or 0 for no limit"),
        ({"log_ranks": "0,9"}, f"{PLACE}log_ranks: the job has no rank 9; it has ranks 0 to 3"),
        (
            {"nodes": 2, "proc": 2},
            f"{PLACE}nodes: no such input; did you mean 'num_nodes'?\n{PLACE}proc: no such input; ",
        ),
        (
            {"gpus": 8},
            f'{PLACE}gpus: no such input; write resources_per_node={{"gpus": 8}}, or call set_accelerator_type',
        ),
        ({"arguments": ["a"]}, f'{PLACE}arguments: no such input; write args=["--epochs", "3"]'),
        ({"retries": 3}, f"{PLACE}retries: no such input; write restart="),
        ({"node_selector": {"a": "b"}}, f"{PLACE}node_selector: no such input; write scheduling="),
        ({"packages_to_install": ["a"]}, f"{PLACE}packages_to_install: no such input; write requirements="),
        ({"timeout": 60}, f'{PLACE}timeout: no such input; write deadline="12h"'),
        (
            {"secrets": ["a"]},
            f'{PLACE}secrets: no such input; write env={{"TOKEN": {{"secret": "NAME", "key": "KEY"}}}}',
        ),
        ({"working_dir": "src"}, f'{PLACE}working_dir: no such input; write code="DIR", in which the ranks start'),
        ({"cache": True}, f"{PLACE}cache: no such input; did you mean 'caching'?"),
        ({"caching": "yes"}, f"{PLACE}caching: 'yes' is not a bool; give the constant True or False"),
    ],
)
def test_a_wrong_type_or_name(tmp_path: Path, inputs: dict[str, Any], expected: str) -> None:
    assert problem(tmp_path, lambda *_: distributed_train(**JOB, **inputs)).startswith(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("num_nodes", "num_nodes: word has the type String, not Integer; declare it as int"),
        ("job", "job: word has the type String, not Dict; declare it as dict, or give the constant path of a job file"),
        ("env", "env: word has the type String, not Dict; declare it as dict"),
        ("requirements", "requirements: word has the type String, not List; declare it as list"),
        ("startup_timeout", "startup_timeout: word has the type String, not Integer; declare it as int"),
    ],
)
def test_a_parameter_of_another_type(tmp_path: Path, name: str, expected: str) -> None:
    found = problem(tmp_path, lambda task, n, word: distributed_train(**{**JOB, name: word}))
    assert found.startswith(f"{PLACE}{expected}")


def test_parameters_of_another_type_are_reported_together(tmp_path: Path) -> None:
    found = problem(tmp_path, lambda task, n, word: distributed_train(**JOB, queue_name=n, labels=word, shm=n))
    assert found.splitlines() == [
        f"{PLACE}queue_name: n has the type Integer, not String; declare it as str",
        f"{PLACE}labels: word has the type String, not Dict; declare it as dict",
        f"{PLACE}shm: n has the type Integer, not String; declare it as str",
    ]


def test_a_parameter_of_another_type_for_a_task_around_training(tmp_path: Path) -> None:
    found = problem(tmp_path, lambda task, n, word: wait_for_training(run=n, timeout=word))
    assert found.splitlines() == [
        "task wait-for-training: run: n has the type Integer, not String; declare it as str",
        "task wait-for-training: timeout: word has the type String, not Integer; declare it as int",
    ]


def test_wrong_types_are_reported_together(tmp_path: Path) -> None:
    inputs = {"num_nodes": "two", "env": "A=1", "labels": ["a"], "args": "--a 1", "backend": "k8s", "on_interrupt": "x"}
    found = problem(tmp_path, lambda *_: distributed_train(**{**JOB, **inputs, "startup_timeout": "1h"}))
    assert [line.removeprefix(PLACE).split(":")[0] for line in found.splitlines()] == [
        "backend",
        "on_interrupt",
        "startup_timeout",
        "env",
        "labels",
        "num_nodes",
        "args",
    ]


def test_a_number_as_the_path_of_the_script(tmp_path: Path) -> None:
    found = problem(tmp_path, lambda task, n, word: distributed_train(**{**JOB, "module": None}, script=n))
    assert found == f"{PLACE}script: n has the type Integer, not String; give a constant path"


@pytest.mark.parametrize("name", ["args", "command"])
def test_a_text_in_the_place_of_a_list_of_words(tmp_path: Path, name: str) -> None:
    job = {**JOB, "module": None} if name == "command" else JOB
    assert problem(tmp_path, lambda task, n, word: distributed_train(**{**job, name: word})) == (
        f"{PLACE}{name}: word is not a list; declare it as list, or write {name}=[word] to pass it as one argument"
    )


@pytest.mark.parametrize(
    ("items", "field", "expected"),
    [
        (["a", "b"], None, "KFP passes item as String, not as a list; write args=[item] to pass it as one argument"),
        ([{"lr": 1}], "lr", "KFP passes item.lr as Integer, not as a list; write args=[item.lr] to pass it as one arg"),
    ],
)
def test_the_item_of_a_loop_in_the_place_of_a_list_of_words(
    tmp_path: Path, items: list[Any], field: str | None, expected: str
) -> None:
    def define(*_: object) -> None:
        with dsl.ParallelFor(items) as item:
            distributed_train(**JOB, args=item if field is None else getattr(item, field))

    assert problem(tmp_path, define).startswith(f"{PLACE}args: {expected}")


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("script", lambda word: {"script": word}),
        ("script", lambda word: {"script": f"{word}.py"}),
        ("code", lambda word: {"script": "train.py", "code": word}),
        ("script", lambda word: {"job": {"script": word}}),
    ],
)
def test_a_path_of_code_that_is_known_only_at_run_time(
    tmp_path: Path, name: str, inputs: Callable[[object], dict[str, Any]]
) -> None:
    job = {**JOB, "module": None}
    found = problem(tmp_path, lambda task, n, word: distributed_train(**job, **inputs(word)))
    assert found.startswith(f"{PLACE}{name}: the path is known only at run time, but the files are packed when the")


def test_a_script_in_a_constant_directory_can_be_selected_at_run_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    @dsl.pipeline(name="select")
    def pipeline(word: str = "train.py") -> None:
        distributed_train(**{**JOB, "module": None}, base_dir=tmp_path, code=".", script=word)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (lambda: cleanup_training(backend="k8s"), "task cleanup-training: backend: 'k8s' is not known; use one of"),
        (lambda: cleanup_training(target="jobsets"), "task cleanup-training: target: 'jobsets' is not known; use one"),
        (lambda: cleanup_training(run="dag.task"), "task cleanup-training: run: 'dag.task' is not a DNS-1035 label"),
        (lambda: wait_for_training(run="a", backend="k8s"), "task wait-for-training: backend: 'k8s' is not known"),
        (lambda: wait_for_training(run="a", timeout=-1), "task wait-for-training: timeout: -1 is not a number of sec"),
        (lambda: wait_for_training(run="a", timeout="1h"), "task wait-for-training: timeout: '1h' is not a number of"),
        (lambda: wait_for_training(run="My run"), "task wait-for-training: run: 'My run' is not a DNS-1035 label"),
        (lambda: wait_for_training(run=""), "task wait-for-training: run: is empty; give the name of a run or of a jo"),
    ],
)
def test_a_wrong_constant_of_a_task_around_training(
    tmp_path: Path, define: Callable[[], dsl.PipelineTask], expected: str
) -> None:
    assert problem(tmp_path, lambda *_: define()).startswith(expected)


def test_run_time_values_of_the_tasks_around_training_are_not_checked(tmp_path: Path) -> None:
    @dsl.pipeline(name="around")
    def pipeline(n: int = 2, word: str = "My run") -> None:
        wait_for_training(run=word, timeout=n, backend=word, namespace=word)
        wait_for_training(run=f"{word}-a")
        cleanup_training(run=word, target=word)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


def test_ranks_of_unknown_numbers_of_nodes_are_not_checked(tmp_path: Path) -> None:
    @dsl.pipeline(name="ranks")
    def pipeline(n: int = 2, ranks: str = "9") -> None:
        distributed_train(**{**JOB, "num_nodes": n}, log_ranks="9")
        distributed_train(**JOB, log_ranks=ranks)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


def test_a_run_time_value_in_a_message_is_no_path_of_the_workspace(tmp_path: Path) -> None:
    found = problem(tmp_path, lambda task, n, word: distributed_train(**JOB, args=f"--data {word}"))
    assert found == f"""{PLACE}args: '--data $' is text, not a list; write ["--data", "$"]"""


def in_loop(items: list[Any], name: Callable[[Any], str]) -> Callable[..., None]:
    """Returns the body of a pipeline that trains for each item."""

    def body(*_: Any) -> None:
        with dsl.ParallelFor(items) as item:
            distributed_train(**JOB, name=name(item))

    return body


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([0.1, 0.5], lambda item: f"fit-{item}"),
        ([{"lr": 0.1}, {"lr": 0.2}], lambda item: f"fit-{item.lr}"),
        (["0.1"], lambda item: f"fit-{item}"),
    ],
)
def test_a_name_that_is_invalid_for_an_item_of_its_loop(
    tmp_path: Path, items: list[Any], name: Callable[[Any], str]
) -> None:
    found = problem(tmp_path, in_loop(items, name))
    assert found.startswith(f"{PLACE}name: 'fit-0.1' is not a DNS-1035 label; use lower-case letters")
    advice = "leave name out, or loop over mappings of text that contain a name, such as "
    item = json.loads(found.partition(advice)[2].partition(", with name=item.run")[0])
    pipeline = dsl.pipeline(name="advice")(lambda: in_loop([item], lambda each: each.run)())
    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


@pytest.mark.parametrize("item", [{"name": "a"}, {"name": "a", "lr": "1"}, {"lr": "1", "name": "a"}])
def test_kfp_refuses_items_with_the_key_name(tmp_path: Path, item: dict[str, str]) -> None:
    """docs/guides/sweeps.md states this. If a version of KFP accepts the key, change the page."""
    with pytest.raises((ValueError, TypeError)):
        dsl.pipeline(name="key")(lambda: in_loop([item], lambda each: each.name)())


def test_names_that_are_valid_or_unknown_are_accepted(tmp_path: Path) -> None:
    @dsl.pipeline(name="names")
    def pipeline(word: str = "0.1", words: list = []):  # noqa: B006  # KFP requires a plain list
        in_loop([1, 2], lambda item: f"fit-{item}")()
        in_loop([{"lr": 0.1, "run": "a"}, {"lr": 0.2, "run": "b"}], lambda item: f"fit-{item.run}")()
        in_loop([0.1], lambda item: f"fit-{word}-{item}")()
        in_loop(words, lambda item: f"fit-{item}")()
        with dsl.ParallelFor([0.1]), dsl.ParallelFor([0.2]) as inner:
            distributed_train(**JOB, name="fit", args=[inner])

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("script", "the program is the function of the component; to run another program, use distributed_train"),
        ("timeout", 'write deadline="12h"'),
        ("caching", "call set_caching_options of the task"),
    ],
)
def test_an_unknown_setting_of_distribute(setting: str, advice: str) -> None:
    with pytest.raises(BadInputError) as raised:
        distribute(prepare, **{setting: "a"})
    assert str(raised.value) == f"{setting}: no such setting; {advice}"


@pytest.mark.parametrize(
    "inputs", [{"script": Path("train.py")}, {"script": "train.py", "code": Path()}, {"job": Path("job.yaml")}]
)
def test_a_path_object_is_a_path(tmp_path: Path, inputs: dict[str, Any]) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text("script: train.py\n")
    job = {**JOB, "module": None}

    @dsl.pipeline(name="paths")
    def pipeline() -> None:
        distributed_train(**job, **inputs, base_dir=tmp_path)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text(encoding="utf-8")))
    assert "packed_code" in spec["root"]["dag"]["tasks"]["distributed-train"]["inputs"]["parameters"]


@pytest.mark.parametrize("wrong", ["function", "task"])
def test_distribute_needs_a_component(tmp_path: Path, wrong: str) -> None:
    found = problem(tmp_path, lambda task, *_: distribute(train if wrong == "function" else task, num_nodes=2))
    assert "is not a component; decorate the function with @dsl.component, and give distribute the component" in found


@dsl.container_component
def of_an_image() -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image="registry.example/train:1")


@dsl.container_component
def of_a_command() -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image="registry.example/train:1", command=["torchrun", "train.py"])


@pytest.mark.parametrize("component", [of_an_image, of_a_command])
def test_the_error_about_a_container_component_names_distributed_train(component: Any) -> None:
    with pytest.raises(BadInputError) as raised:
        distribute(component, num_nodes=2)
    assert str(raised.value) == (
        f"component {component.name!r} is not a lightweight Python component; create it with @dsl.component, or run the"
        ' program of a container component with distributed_train(image="REGISTRY/NAME:TAG", command=[...])'
    )


def test_the_error_about_a_pytorchjob_names_the_task_and_the_guide(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {}\n")
    for job in ("digits.yaml", {"kind": "PyTorchJob", "spec": {}}):
        found = problem(tmp_path, lambda *_, job=job: distributed_train(job=job, image="a:1", base_dir=tmp_path))
        assert found.startswith(f"{PLACE}kind: 'PyTorchJob' is an object of Kubernetes, not a job of stepset; write a")
        assert "docs/guides/pytorchjob.md" in found


def test_a_syntax_error_of_the_script_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train.py").write_text("print(1\n")

    @dsl.pipeline(name="syntax")
    def pipeline() -> None:
        distributed_train(**{**JOB, "module": None}, script="train.py", base_dir=tmp_path)

    assert any(
        text.startswith(f"{PLACE}script: train.py, line 1: syntax error: '(' was never closed")
        for text in caplog.messages
    )


@pytest.mark.parametrize(
    "define",
    [
        lambda directory: distributed_train(**JOB, name="digits", base_dir=directory, procs_per_nod=1),
        lambda directory: distributed_train(**{**JOB, "num_nodes": 0}, name="digits", base_dir=directory),
        lambda directory: distributed_train(job="none.yaml", name="digits", base_dir=directory),
        lambda directory: wait_for_training(run=""),
        lambda directory: distribute(prepare, num_nodes=0),
    ],
    ids=["unknown input", "input", "job file", "task around training", "distribute"],
)
def test_the_traceback_contains_only_one_error_of_stepset(tmp_path: Path, define: Callable[[Path], object]) -> None:
    with pytest.raises(BadInputError) as raised:
        dsl.pipeline(name="mistakes")(lambda: define(tmp_path))()
    text = "".join(traceback.format_exception(raised.value))
    assert text.count("stepset.errors.BadInputError: ") == 1


def test_the_error_about_a_missing_script_names_the_directory_that_is_used(tmp_path: Path) -> None:
    job = {**JOB, "module": None, "script": "train.py"}
    code = tmp_path / "code"
    code.mkdir()
    found = problem(tmp_path, lambda *_: distributed_train(**job, base_dir=code))
    assert found.startswith(f"{PLACE}script: no such file: {code}/train.py; paths are relative to {code}; for a script")
    (code / "job.yaml").write_text("name: digits\n")
    found = problem(tmp_path, lambda *_: distributed_train(**job, job="code/job.yaml", base_dir=tmp_path))
    assert f"{code}/train.py; paths are relative to {code}; " in found


def test_the_error_about_a_missing_or_invalid_job_file_names_the_task(tmp_path: Path) -> None:
    found = problem(tmp_path, lambda *_: distributed_train(job="none.yaml", name="digits", base_dir=tmp_path))
    assert found == f"task distributed-train (digits): job: {tmp_path}/none.yaml: no such file; check the path"
    (tmp_path / "job.yaml").write_text("- a\n")
    found = problem(tmp_path, lambda *_: distributed_train(job="job.yaml", base_dir=tmp_path))
    assert found.startswith(f"{PLACE}job: {tmp_path}/job.yaml: ")
