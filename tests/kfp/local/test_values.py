"""Any value arrives unchanged in `args` and `env`, as a constant and as a parameter of the pipeline."""

# KFP evaluates annotations: no `from __future__ import annotations`.
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp import compiler, dsl

from stepset.errors import BadInputError
from stepset.spec.job import TrainingJob
from stepset.spec.load import parse_job
from stepset_kfp import cleanup_training, distribute, distributed_train
from stepset_kfp.encoding import as_text, parameters_of, with_decoded_inputs
from stepset_kfp.job_inputs import job_mapping
from tests.kfp.backend_rules import arrived, launcher_argument
from tests.kfp.hard_values import HARD
from tests.kfp.pipelines import run_pipeline

TEXTS = st.one_of(
    st.sampled_from(HARD), st.text(st.characters(codec="utf-8", exclude_characters="\0")).map(lambda text: text[:40])
)
# The changes to run-time values that docs/design/kfp-inputs.md lists under "Not solved" are excluded.
RUNTIME_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0{\x7f", max_codepoint=0xFFFF), max_size=40)


def job_after(tmp_path: Path, parameters: dict[str, Any], make: Any) -> TrainingJob:
    """Compiles a pipeline with one task, applies the rules of KFP and Argo, and returns the job of the step."""
    compiler.Compiler().compile(pipeline_of(tmp_path, make), str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text(encoding="utf-8")))
    values = arrived(spec["root"]["dag"]["tasks"]["distributed-train"], parameters)
    return parse_job(job_mapping(with_decoded_inputs(values, values)))


def pipeline_of(tmp_path: Path, make: Any) -> Any:
    def pipeline(text: str, count: int, rate: float, on: bool, many: list, some: dict) -> None:
        channels = {"text": text, "count": count, "rate": rate, "on": on, "many": many, "some": some}
        distributed_train(base_dir=tmp_path, module="train", **make(channels))

    workspace = dsl.PipelineConfig(workspace=dsl.WorkspaceConfig("1Gi"))
    return dsl.pipeline(name="test-values", pipeline_config=workspace)(pipeline)


@settings(max_examples=60, deadline=None)
@given(words=st.lists(TEXTS, max_size=4), variables=st.dictionaries(st.sampled_from("ABC"), TEXTS))
def test_constants_arrive_unchanged(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], variables: dict[str, str]
) -> None:
    job = job_after(tmp_path_factory.mktemp("p"), {}, lambda _: {"args": words, "env": variables})
    assert job.args == words
    assert job.to_dict().get("env", {}) == variables


@pytest.mark.parametrize(
    "make",
    [
        lambda given: {"env": {"A": "x", "D": 1, "E": "$(A)", "B": "$(E)"}},
        lambda given: {"env": {"A": given["text"], "D": 1, "E": "$(A)", "B": "$(E)"}},
        lambda given: {"job": {"env": {"A": "x", "D": 1, "E": "$(A)", "B": "$(E)"}}},
    ],
    ids=["constants", "run-time value", "job"],
)
def test_the_variables_arrive_in_their_order(tmp_path: Path, make: Any) -> None:
    job = job_after(tmp_path, {"text": "x"}, make)
    assert list(job.to_dict()["env"]) == ["A", "D", "E", "B"]


@settings(max_examples=60, deadline=None)
@given(
    text=RUNTIME_TEXTS,
    around=TEXTS,
    many=st.lists(RUNTIME_TEXTS, max_size=3),
    some=st.dictionaries(RUNTIME_TEXTS, RUNTIME_TEXTS, max_size=3),
)
def test_parameters_arrive_unchanged(
    tmp_path_factory: pytest.TempPathFactory, text: str, around: str, many: list[str], some: dict[str, str]
) -> None:
    parameters = {"text": text, "count": 7, "rate": 2.0, "on": True, "many": many, "some": some}
    job = job_after(
        tmp_path_factory.mktemp("p"),
        parameters,
        lambda given: {
            "args": [given["text"], f"{around}{given['text']}{around}", given["many"], given["on"], given["count"]],
            "env": {"A": given["some"], "B": {"value": given["text"]}, "C": f"x{given['many']}", "D": given["rate"]},
            "checkpoint_dir": f"/data/{given['count']}",
        },
    )
    assert job.args == [text, around + text + around, json.dumps(many, ensure_ascii=False), "true", "7"]
    env = job.to_dict()["env"]
    assert (json.loads(env["A"]), env["B"], env["D"]) == (some, text, "2.0")
    assert json.loads(env["C"][1:]) == many
    assert job.checkpoint_dir == "/data/7"


def test_a_number_may_be_the_value_of_a_text_input(tmp_path: Path) -> None:
    job = job_after(
        tmp_path, {"count": 7, "rate": 2.5}, lambda given: {"procs_per_node": given["count"], "ttl": given["count"]}
    )
    assert (job.procs_per_node, job.ttl) == (7, 7)


@pytest.mark.parametrize("put", [lambda fields: fields, lambda fields: {"job": fields}], ids=["inputs", "job"])
def test_the_items_of_a_list_or_mapping_become_text(tmp_path: Path, put: Any) -> None:
    words = ["x", 1, 2.5, True, None, ["a", 1.0], {"b": False}]
    job = job_after(
        tmp_path,
        {"many": words, "some": {"A": True, "B": 1, "C": {"secret": "s", "key": "k"}}},
        lambda given: put({"args": given["many"], "env": given["some"]}),
    )
    assert job.args == ["x", "1", "2.5", "true", "", '["a", 1]', '{"b": false}']
    assert job.to_dict()["env"] == {"A": "true", "B": "1", "C": {"secret": "s", "key": "k"}}
    on = {"on": True, "rate": 2.0}
    job = job_after(tmp_path, on, lambda given: put({"args": [given["on"], given["rate"]], "env": {"A": given["on"]}}))
    assert (job.args, job.to_dict()["env"]) == (["true", "2.0"], {"A": "true"})
    with pytest.raises(BadInputError, match=r"args\.1: true is not text"):
        job_after(tmp_path, {}, lambda _: put({"args": ["x", True]}))


def test_placeholders_of_kfp_are_replaced_anywhere(tmp_path: Path) -> None:
    run, workspace = dsl.PIPELINE_JOB_ID_PLACEHOLDER, dsl.WORKSPACE_PATH_PLACEHOLDER
    job = job_after(tmp_path, {}, lambda _: {"args": [run, f"{workspace}/runs/{run}"], "checkpoint_dir": f"/r/{run}"})
    assert job.args == ["2f8a", "/kfp-workspace/runs/2f8a"]
    assert job.checkpoint_dir == "/r/2f8a"


def test_values_that_are_plain_remain_readable_in_the_pipeline(tmp_path: Path) -> None:
    make = lambda _: {"args": ["--lr", 'a "b"'], "env": {"A": "é\n"}}  # noqa: E731
    compiler.Compiler().compile(pipeline_of(tmp_path, make), str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text(encoding="utf-8")))
    inputs = spec["root"]["dag"]["tasks"]["distributed-train"]["inputs"]["parameters"]
    assert inputs["args"]["runtimeValue"]["constant"] == ["--lr", 'a "b"']
    assert "encoded_inputs" not in inputs


def test_a_mapping_that_looks_like_a_form_arrives_unchanged(tmp_path: Path) -> None:
    labels = {"$value": "{{x}}"}
    job = job_after(tmp_path, {}, lambda _: {"backend": "local", "pod_template": {"metadata": {"annotations": labels}}})
    assert job.to_dict()["pod_template"] == {"metadata": {"annotations": labels}}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"args": ["a\0b"]}, r"args\.0: contains U\+0000, which no process .*; write the text to a file"),
        ({"env": {"A": "\ud800"}}, r"env\.A: contains U\+D800"),
        ({"args": ["x", dsl.PIPELINE_ROOT_PLACEHOLDER]}, r"args\.1: KFP does not replace \{\{\$\.pipeline_root\}\}"),
        ({"env": {"A": "{{$}}"}}, r"env\.A: KFP does not replace \{\{\$\}\} in inputs; use a parameter"),
    ],
    ids=["nul", "surrogate", "root", "input"],
)
def test_a_constant_that_cannot_arrive_is_refused_when_the_pipeline_is_compiled(
    tmp_path: Path, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        pipeline_of(tmp_path, lambda _: inputs)


def test_the_inputs_of_run_time_values_have_the_names_of_these_values(tmp_path: Path) -> None:
    """KFP's run page shows the names and the values of a step's inputs."""

    @dsl.component(base_image="registry.example/own:1")
    def prepare() -> str:
        return "data"

    @dsl.pipeline(name="names")
    def pipeline(epochs: int, prepare_output: str) -> None:
        values = [epochs, prepare().output, prepare_output, dsl.PIPELINE_JOB_ID_PLACEHOLDER]
        distributed_train(base_dir=tmp_path, module="train", args=[*values, f"again {epochs}"])

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text(encoding="utf-8")))
    inputs = spec["root"]["dag"]["tasks"]["distributed-train"]["inputs"]["parameters"]
    names = {"value_epochs", "value_prepare_output", "value_prepare_output_2", "value_pipeline_job_uuid"}
    assert set(inputs) == {"encoded_inputs", "module", *names}
    described = spec["components"]["comp-distributed-train"]["inputDefinitions"]["parameters"]
    descriptions = {described[name]["description"].partition(";")[0].rpartition(" ")[2] for name in names}
    assert descriptions == {"epochs", "prepare.Output", "prepare_output", "pipeline_job_uuid"}
    assert all(each.get("description") for name, each in described.items() if name != "task_config")


@pytest.mark.parametrize(
    ("place", "inputs"),
    [
        (r"args\.0", lambda model: {"args": [model]}),
        ("args", lambda model: {"args": model}),
        ("checkpoint_dir", lambda model: {"checkpoint_dir": model}),
    ],
)
def test_an_artifact_in_a_value_is_refused(tmp_path: Path, place: str, inputs: Any) -> None:
    def pipeline() -> None:
        first = distributed_train(base_dir=tmp_path, module="train")
        distributed_train(base_dir=tmp_path, module="train", **inputs(first.outputs["model"]))

    with pytest.raises(BadInputError, match=rf"{place}: model is an artifact, which .* return the path .* distribute"):
        dsl.pipeline(name="test-artifact")(pipeline)


def test_the_field_of_a_loops_item_may_be_inside_a_text(tmp_path: Path) -> None:
    @dsl.pipeline(name="test-loop")
    def pipeline() -> None:
        with dsl.ParallelFor([{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]) as item:
            distributed_train(base_dir=tmp_path, module="train", args=[f"--a={item.a}"])

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec = yaml.safe_load((tmp_path / "pipeline.yaml").read_text())
    loop = next(each for name, each in spec["components"].items() if name.startswith("comp-for-loop"))
    parameters = loop["dag"]["tasks"]["distributed-train"]["inputs"]["parameters"]
    (value,) = [each for name, each in parameters.items() if name.startswith("value_")]
    assert value["componentInputParameter"] in loop["inputDefinitions"]["parameters"]
    assert value["parameterExpressionSelector"] == 'parseJson(string_value)["a"]'
    outer = spec["root"]["dag"]["tasks"]["for-loop-2"].get("inputs", {}).get("parameters", {})
    assert not outer, "the loop needs no input that the pipeline does not have"


def test_a_loops_item_may_be_inside_a_text_in_an_exit_handler(tmp_path: Path) -> None:
    @dsl.pipeline(name="test-loop")
    def pipeline(items: list) -> None:
        with dsl.ExitHandler(cleanup_training()), dsl.ParallelFor(items) as item:
            distributed_train(base_dir=tmp_path, module="train", args=[item], checkpoint_dir=f"/data/{item}")

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec = yaml.safe_load((tmp_path / "pipeline.yaml").read_text())
    outer = spec["root"]["dag"]["tasks"]["exit-handler-1"]["inputs"]["parameters"]
    assert outer == {"pipelinechannel--items": {"componentInputParameter": "items"}}, "only what the pipeline has"


def test_settings_of_distribute_contain_nothing_that_argo_replaces() -> None:
    @dsl.component(base_image="example/python:1")
    def component() -> None:
        pass

    many = distribute(component, num_nodes=1, env={"A": "{{workflow.name}} \x7f"})
    arguments = many.component_spec.implementation.container.args
    assert "{{" not in arguments[1]
    assert json.loads(arguments[1])["env"] == {"A": "{{workflow.name}} \x7f"}


def test_the_parameters_of_a_step_are_those_of_its_command_line() -> None:
    text = launcher_argument({"value_1": 'a "b"\n', "value_2": 2})
    arguments = ["executor_main.py", "--executor_input", text, "--function_to_execute", "distributed_train"]
    assert parameters_of(arguments) == {"value_1": 'a "b"\n', "value_2": 2.0}
    assert parameters_of(["pytest", "-q"]) == {}


@pytest.mark.local
def test_values_arrive_byte_for_byte_in_the_training_process(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import json, os, sys\n"
        "with open(os.environ['STEPSET_RESULT_FILE'], 'w') as file:\n"
        "    json.dump({'args': sys.argv[1:], 'A': os.environ['A'], 'B': os.environ['B']}, file)\n"
    )
    runtime = 'a "quoted" \\ backslash\nnewline \U0001f600'

    @dsl.pipeline(name="test-bytes")
    def pipeline(text: str, many: list, some: dict) -> None:
        distributed_train(
            base_dir=tmp_path,
            framework="plain",
            num_nodes=1,
            script="train.py",
            args=[*HARD, text, f"--x={text}", many],
            env={"A": some, "B": "".join(HARD)},
        )

    many, some = ["a", 1, 'b"'], {"k\\": "é\n"}
    ran = run_pipeline(pipeline, tmp_path / "out", text=runtime, many=many, some=some)
    assert ran.error is None
    result = json.loads(ran.output("distributed-train", "result").read_text(encoding="utf-8"))
    assert result["args"] == [*HARD, runtime, f"--x={runtime}", as_text(many)]
    assert json.loads(result["A"]) == some
    assert result["B"] == "".join(HARD)
    assert sys.getfilesystemencoding() == "utf-8"
