"""The value of a parameter changes no other input of a step, whatever the value contains."""

# KFP evaluates annotations: no `from __future__ import annotations`.
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp import compiler, dsl

from stepset.errors import BadInputError
from stepset_kfp import cleanup_training, distribute, distributed_train, wait_for_training
from stepset_kfp.encoding import ENCODED_ARGUMENTS, decode, with_decoded_inputs
from stepset_kfp.step.executor_input import check_insertions
from tests.kfp.backend_rules import arrived, launcher_argument, launcher_input

OTHER_PROGRAM = '"backend": "local", "framework": "plain", "command": ["sh", "-c", "touch attacked"]'
ATTACKS = [
    f'3"], {OTHER_PROGRAM}, "ignored": ["',
    f'3"]}}, {OTHER_PROGRAM}, "ignored": {{"args": ["',
    f'3", {OTHER_PROGRAM}, "ignored": "',
    f'3"}}}}, "inputs": {{"parameterValues": {{{OTHER_PROGRAM}}}}}, "ignored": {{"x": {{"y": "',
    '\\", "namespace": "kube-system", "x": "',
    'a "b" \\ c\nd\te\u2028 {"f": [1]}',
]
SAFE = "SAFE"


@dsl.component(base_image="registry.example/own:1")
def produce() -> str:
    return "text"


@dsl.component(base_image="registry.example/own:1")
def user(path: str, words: list, some: dict, data: str = "own") -> str:
    return path


MANY = distribute(user, num_nodes=1, shared_dir="/shared")


def loop(directory: Path, text: Any) -> None:
    with dsl.ParallelFor(["a", "b"]) as item:
        distributed_train(base_dir=directory, module="train", args=[f"{item}-{text}"])


def condition(directory: Path, text: Any) -> None:
    with dsl.If(text != "x"):
        distributed_train(base_dir=directory, module="train", args=["--epochs", text])


def training(**inputs: Callable[[Any], Any]) -> Callable[[Path, Any], None]:
    def make(directory: Path, text: Any) -> None:
        given = {name: value(text) for name, value in inputs.items()}
        program = {} if given.keys() & {"command", "script", "job"} else {"module": "train"}
        distributed_train(base_dir=directory, **program, **given)

    return make


PLACES: dict[str, Callable[[Path, Any], Any]] = {
    "args": training(args=lambda text: ["--epochs", text]),
    "args, inside a text": training(args=lambda text: ["--epochs", f"{text}-{text}"]),
    "command": training(command=lambda text: ["python", "-c", text]),
    "env": training(env=lambda text: {"A": text, "B": f"x{text}"}),
    "key of env": training(env=lambda text: {f"A{text}": "x"}),
    "name": training(name=lambda text: text),
    "image": training(image=lambda text: f"registry.example/{text}"),
    "framework": training(framework=lambda text: text),
    "framework, a mapping": training(framework=lambda text: {"kind": "mpi", "implementation": text}),
    "checkpoint_dir": training(checkpoint_dir=lambda text: f"/data/{text}"),
    "labels": training(labels=lambda text: {"run": text}),
    "pod_template": training(pod_template=lambda text: {"metadata": {"annotations": {"a": [text, f"b{text}"]}}}),
    "resources": training(resources_per_node=lambda text: {"requests": {"cpu": text}}),
    "storage": training(storage=lambda text: [{"path": "/d", "claim": f"c-{text}"}]),
    "roles": training(roles=lambda text: [{"name": "ps", "command": ["ps", text], "env": {"A": f"x{text}"}}]),
    "job": training(job=lambda text: {"module": "train", "args": [text], "env": {"A": f"x{text}"}}),
    "backend": training(backend=lambda text: text),
    "namespace": training(namespace=lambda text: f"ns-{text}"),
    "loop": loop,
    "condition": condition,
    "wait_for_training": lambda _, text: wait_for_training(run=text),
    "wait_for_training, inside a text": lambda _, text: wait_for_training(run=f"fit-{text}", namespace=f"ns-{text}"),
    "cleanup_training": lambda _, text: cleanup_training(run=f"fit-{text}", namespace=f"ns-{text}"),
    "distribute": lambda _, text: MANY(path=text, words=[], some={}),
    "distribute, inside a text": lambda _, text: MANY(path=f"/d/{text}", words=["a", text], some={"a": f"b{text}"}),
}


def compiled(directory: Path, make: Callable[[Path, Any], Any], *, output: bool) -> dict[str, Any]:
    """Returns the task of a pipeline whose inputs contain a parameter, or the output of a task."""

    def pipeline(text: str) -> None:
        make(directory, produce().output if output else text)

    compiler.Compiler().compile(dsl.pipeline(name="test-text")(pipeline), str(directory / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((directory / "pipeline.yaml").read_text(encoding="utf-8")))
    dags = [spec["root"], *(each for each in spec["components"].values() if "dag" in each)]
    (task,) = (
        task
        for dag in dags
        for name, task in dag["dag"]["tasks"].items()
        if name.removesuffix("-2") in {"distributed-train", "wait-for-training", "cleanup-training", "user"}
    )
    return dict(task)


def step_inputs(task: dict[str, Any], text: str) -> Any:
    """Returns the inputs that a step uses if each run-time value of its task is `text`."""
    given = {
        name: {"runtimeValue": {"constant": each["runtimeValue"]["constant"]}}
        if "runtimeValue" in each
        else {"componentInputParameter": "text"}
        for name, each in task["inputs"]["parameters"].items()
    }
    values = arrived({"inputs": {"parameters": given}}, {"text": text})
    encoded = values.get(ENCODED_ARGUMENTS) or {}
    decoded = {**with_decoded_inputs(values, values), **{name: decode(each, values) for name, each in encoded.items()}}
    return {name: each for name, each in decoded.items() if not name.startswith(("value_", "pipelinechannel--"))}


def replaced(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(SAFE, text)
    if isinstance(value, dict):
        return {replaced(key, text): replaced(item, text) for key, item in value.items()}
    return [replaced(item, text) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("output", [False, True], ids=["parameter", "output of a task"])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_time_value_changes_no_other_input(tmp_path: Path, place: str, output: bool) -> None:
    task = compiled(tmp_path, PLACES[place], output=output)
    expected = step_inputs(task, SAFE)
    assert SAFE in json.dumps(expected)
    for attack in ATTACKS:
        assert step_inputs(task, attack) == replaced(expected, attack)


NAMES = ("a", "b", "c", "args")
PIECES = st.sampled_from(
    [
        *(f"{{{{$.inputs.parameters['{name}']}}}}" for name in NAMES),
        *(
            '"',
            "\\",
            "\n",
            "{",
            "}",
            "{{",
            "$",
            "{$.",
            "$.inputs.parameters['a']}}",
            "{{$.in",
            "puts.parameters['b']}}",
        ),
        *("']}}", "x", '", "command": ["sh"], "y": "', '"]}}}, "z": {"', "{{$.inputs.artifacts['a'].uri}}", "$HOME"),
    ]
)
TEXTS = st.lists(PIECES, max_size=5).map("".join)


@settings(max_examples=2000, deadline=None)
@given(a=TEXTS, b=TEXTS, c=TEXTS, item=TEXTS, order=st.permutations(NAMES))
def test_placeholders_in_values_are_harmless_or_refused(a: str, b: str, c: str, item: str, order: list[str]) -> None:
    """The attacks of `ATTACKS` also work if a value contains its own placeholder, or that of another value."""
    given_values = {"a": a, "b": b, "c": c, "args": ["--x", item]}
    before = launcher_input(given_values)
    try:
        check_insertions(before)
    except BadInputError:
        return
    after = json.loads(launcher_argument({name: given_values[name] for name in order}), object_pairs_hook=list)
    ((inputs, ((kind, values),)),) = after
    assert (inputs, kind, [name for name, _ in values]) == ("inputs", "parameterValues", sorted(NAMES))
    for name, value in values:
        assert isinstance(value, str) if name != "args" else [type(each) for each in value] == [str, str]
        if "{{$.inputs.parameters" not in json.dumps(before["inputs"]["parameterValues"][name]):
            assert value == given_values[name]


def test_values_without_placeholders_are_accepted() -> None:
    for text in (*ATTACKS, "{{$.pipeline_job_uuid}}", "{{workflow.name}}", "${HOME}", "{{$"):
        check_insertions(launcher_input({"value_a": text, "args": [text], "env": {text: text}}))
    check_insertions(launcher_input({"args": ["{{$.inputs.parameters['a']}} ${HOME} $A"], "a": "x {} [1]"}))


LAUNCHER = """\
import json, subprocess, sys
executor_input = json.loads(sys.argv[2])
text = json.dumps(executor_input)
parameters = executor_input["inputs"]["parameterValues"]
for name in parameters:
    value = parameters[name]
    inserted = value if isinstance(value, str) else json.dumps(value)
    text = text.replace("{{$.inputs.parameters['" + name + "']}}", inserted)
sys.exit(subprocess.call([text if word == "{{$}}" else word for word in sys.argv[4:]]))
"""


def attacks(name: str, other: str) -> Iterator[dict[str, str]]:
    own = f"{{{{$.inputs.parameters['{name}']}}}}"
    yield {name: f'x{own}", {OTHER_PROGRAM}, "encoded_inputs": {{}}, "module": "", "data": "evil", "ignored": "'}
    inserted = f'x", {OTHER_PROGRAM}, "encoded_inputs": {{}}, "module": "", "data": "evil", "ignored": "'
    yield {name: f"{{{{$.inputs.parameters['{other}']}}}}", other: inserted}


@pytest.mark.local
@pytest.mark.parametrize("number", [0, 1], ids=["its own placeholder", "the placeholder of another value"])
@pytest.mark.parametrize("kind", ["distributed_train", "the component itself", "distribute"])
def test_a_step_refuses_values_that_kfp_inserts_into_others(tmp_path: Path, home: Path, kind: str, number: int) -> None:
    (tmp_path / "train.py").write_text("open('trained', 'w').close()\n")

    def pipeline(first: str, second: str) -> None:
        if kind == "distribute":
            distribute(user, num_nodes=1, backend="local")(path=f"{first}{second}", words=[], some={})
        elif kind == "distributed_train":
            distributed_train(base_dir=tmp_path, module="train", backend="local", args=[first, second])
        else:
            from stepset_kfp.training.distributed_train.component import distributed_train as component

            component(module="train", backend="local", checkpoint_dir=f"{first}{second}")

    compiler.Compiler().compile(dsl.pipeline(name="test-attack")(pipeline), str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text(encoding="utf-8")))
    (task,) = spec["root"]["dag"]["tasks"].values()
    given_inputs = task["inputs"]["parameters"]
    names = {each["componentInputParameter"]: name for name, each in given_inputs.items() if "runtimeValue" not in each}
    values = list(attacks(names["first"], names["second"]))[number]
    constants = {n: each["runtimeValue"]["constant"] for n, each in given_inputs.items() if "runtimeValue" in each}
    executor_input = launcher_input({**constants, **dict.fromkeys(names.values(), "3"), **values})
    executor_input["outputs"] = {"outputFile": str(tmp_path / "output.json")}
    (executor,) = spec["deploymentSpec"]["executors"].values()
    words = [*executor["container"]["command"], *executor["container"]["args"]]
    path = os.pathsep.join([str(Path(__file__).resolve().parents[3]), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", LAUNCHER, "--executor_input", json.dumps(executor_input), "--", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "STEPSET_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == int(BadInputError.exit_code), ended.stdout + ended.stderr
    assert "KFP replaces the placeholders in this text" in ended.stdout + ended.stderr
    assert not list(tmp_path.rglob("attacked")) and not list(tmp_path.rglob("trained"))
