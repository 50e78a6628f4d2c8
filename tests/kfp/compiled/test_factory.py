"""`distributed_train(...)` in a pipeline: errors are raised when the pipeline is compiled."""

import inspect
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, local

from stepset.errors import BadInputError
from stepset_kfp import cleanup_training, distributed_train, wait_for_training
from stepset_kfp.encoding import ENCODED_INPUTS
from stepset_kfp.packing import from_text, unpack
from stepset_kfp.training.cleanup_training import cleanup_training as cleanup_component
from stepset_kfp.training.wait_for_training import wait_for_training as wait_component
from tests.code_blocks import ROOT, blocks


def compiled(tmp_path: Path, **inputs: object) -> dict:
    """Returns the compiled task of a pipeline with one task."""

    @dsl.pipeline(name="test-factory")
    def pipeline(epochs: int = 3, where: str = "/data"):
        channels = {"EPOCHS": epochs, "WHERE": where}
        given = {name: channels.get(value, value) for name, value in inputs.items()}
        distributed_train(base_dir=tmp_path, **given)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    return yaml.safe_load((tmp_path / "pipeline.yaml").read_text())["root"]["dag"]["tasks"]["distributed-train"]


def test_caching_is_off_unless_requested(tmp_path: Path) -> None:
    assert not compiled(tmp_path, module="train")["cachingOptions"].get("enableCache")
    assert compiled(tmp_path, module="train", caching=True)["cachingOptions"]["enableCache"]


def test_tasks_that_act_on_runs_are_never_cached(tmp_path: Path) -> None:
    """With a cache hit, no run is deleted, and the result is that of an earlier run."""

    @dsl.pipeline(name="around")
    def around():
        with dsl.ExitHandler(cleanup_training()):
            wait_for_training(run="digits")

    compiler.Compiler().compile(around, str(tmp_path / "around.yaml"))
    text = yaml.safe_load((tmp_path / "around.yaml").read_text())
    parts = [text["root"], *text["components"].values()]
    tasks = {name: task for part in parts for name, task in part.get("dag", {}).get("tasks", {}).items()}
    for name in ("cleanup-training", "wait-for-training"):
        assert not tasks[name]["cachingOptions"].get("enableCache"), name


@pytest.mark.parametrize(
    ("function", "component"),
    [(cleanup_training, cleanup_component), (wait_for_training, wait_component)],
    ids=["cleanup_training", "wait_for_training"],
)
def test_a_function_has_the_inputs_and_defaults_of_its_component(function: Any, component: Any) -> None:
    parameters = inspect.signature(function).parameters.values()
    given = {each.name: None if each.default is each.empty else each.default for each in parameters}
    inputs = component.component_spec.inputs
    assert given == {name: each.default for name, each in inputs.items() if name != ENCODED_INPUTS}


class TestDisplayName:
    def shown(self, tmp_path: Path, *tasks: dict[str, Any]) -> dict[str, str]:
        """Returns the name of each task in a pipeline, and its name in KFP's user interface."""

        @dsl.pipeline(name="test-names")
        def pipeline(word: str = "x"):
            for inputs in tasks:
                given = {name: word if value == "WORD" else value for name, value in inputs.items()}
                shown = given.pop("shown", None)
                task = distributed_train(base_dir=tmp_path, module="train", **given)
                if shown is not None:
                    task.set_display_name(shown)

        compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
        found = yaml.safe_load((tmp_path / "pipeline.yaml").read_text())["root"]["dag"]["tasks"]
        return {name: task["taskInfo"]["name"] for name, task in found.items()}

    def test_a_task_is_shown_with_the_name_of_its_job(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("name: large\n")
        found = self.shown(
            tmp_path, {"name": "small"}, {"job": "job.yaml"}, {}, {"name": "WORD"}, {"job": {"name": "a"}, "name": "b"}
        )
        assert found == {
            "distributed-train": "small",
            "distributed-train-2": "large",
            "distributed-train-3": "distributed-train-3",
            "distributed-train-4": "distributed-train-4",
            "distributed-train-5": "b",
        }, "the names in the pipeline, from which Argo makes those of its nodes, do not change"

    def test_tasks_with_the_same_job_differ(self, tmp_path: Path) -> None:
        found = self.shown(tmp_path, *[{"name": "digits"}] * 3)
        assert [*found.values()] == ["digits", "digits-2", "digits-3"]
        assert self.shown(tmp_path, {"name": "digits"}) == {"distributed-train": "digits"}, "another pipeline"

    def test_the_author_may_set_another_name(self, tmp_path: Path) -> None:
        assert self.shown(tmp_path, {"name": "digits", "shown": "Digits, all"}) == {"distributed-train": "Digits, all"}

    def test_the_local_runner_has_no_display_names(self, tmp_path: Path) -> None:
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path))
        assert self.shown(tmp_path, {"name": "digits"}) == {"distributed-train": "distributed-train"}


def test_a_script_is_packed_into_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    inputs = compiled(tmp_path, script="train.py")["inputs"]["parameters"]
    assert inputs["script"]["runtimeValue"]["constant"] == "train.py"
    assert len(inputs["packed_code"]["runtimeValue"]["constant"]) > 50


def test_a_job_file_is_read_and_its_script_is_packed(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/job.yaml").write_text("framework: {kind: torch, launcher: none}\nscript: train.py\n")
    (tmp_path / "jobs/train.py").write_text("print(1)\n")
    inputs = compiled(tmp_path, job="jobs/job.yaml", num_nodes=2)["inputs"]["parameters"]
    assert inputs["job"]["runtimeValue"]["constant"]["framework"] == {"kind": "torch", "launcher": "none"}
    assert "packed_code" in inputs


class TestCode:
    @pytest.fixture
    def code(self, tmp_path: Path) -> Path:
        directory = tmp_path / "project/code"
        directory.mkdir(parents=True)
        (directory / "train.py").write_text("print(1)\n")
        return directory

    def test_files_that_are_ignored_are_not_part_of_the_pipeline(
        self, tmp_path: Path, code: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (code / ".env").write_text("TOKEN=1")
        (code / ".gitignore").write_text(".env\n")
        inputs = compiled(tmp_path, code="project/code", script="project/code/train.py")["inputs"]["parameters"]
        given = {name: value["runtimeValue"]["constant"] for name, value in inputs.items()}
        assert (given["code"], given["script"]) == ("code", "train.py")
        unpack(from_text(given["packed_code"]), tmp_path)
        assert (tmp_path / "train.py").exists() and not (tmp_path / ".env").exists()
        note = "code: 1 file is ignored because of .gitignore; `stepset explain --files` lists what is shipped"
        assert [text for text in caplog.messages if " code: " in text] == [f"task distributed-train: {note}"]

    def test_imports_that_are_not_shipped_are_noted_as_by_validate(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "train.py").write_text("import os, sys\nsys.path.append(os.environ['LIB'])\nimport found_nowhere\n")
        compiled(tmp_path, script="train.py", name="digits", image="registry.example/train:1")
        words = [sys.executable, "-m", "stepset", "validate", "train.py", "--image", "registry.example/train:1"]
        validated = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        (note,) = [
            text.removeprefix("task distributed-train (digits): ")
            for text in caplog.messages
            if "found_nowhere" in text
        ]
        assert note.startswith("script: found_nowhere is imported, but found neither beside the script nor on this")
        assert f"note: {note}" in validated.splitlines()

    def test_credentials_and_links_that_leave_are_errors(self, tmp_path: Path, code: Path) -> None:
        (code / ".env").write_text("TOKEN=1")
        (code / "link").symlink_to("/etc/passwd")
        with pytest.raises(BadInputError, match=r"code: link is a link to /etc/passwd(?s:.*)code: \.env looks like"):
            compiled(tmp_path, code="project/code", module="train")

    def test_a_script_that_is_a_private_key_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "id_rsa").write_text("1")
        with pytest.raises(BadInputError, match=r"script: .* looks like credentials"):
            compiled(tmp_path, script="id_rsa")

    def test_the_directory_above_is_unpacked_under_its_own_name(self, tmp_path: Path, code: Path) -> None:
        inputs = compiled(code.parent, code="code/..", script="code/train.py")["inputs"]["parameters"]
        assert inputs["code"]["runtimeValue"]["constant"] == "project"

    def test_the_error_about_the_size_names_the_largest_files(self, tmp_path: Path, code: Path) -> None:
        (code / "data.bin").write_bytes(os.urandom(100_000))
        with pytest.raises(
            BadInputError, match=r"the largest files are data\.bin \(100000 bytes\), train\.py .*--files"
        ):
            compiled(tmp_path, code="project/code", module="train")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"module": "train", "num_node": 2}, "num_node: no such input; did you mean 'num_nodes'"),
        ({"module": "train", "framework": "pytroch"}, "did you mean 'torch'"),
        ({"module": "train", "script": "train.py"}, "script and module are given"),
        ({"script": "nowhere.py"}, "no such file"),
        ({"module": "train", "num_nodes": -1}, "num_nodes"),
        ({"module": "train", "num_nodes": 0}, "num_nodes: 0 is too small"),
        ({"module": "train", "backend": "cloud"}, "auto, local, kubernetes"),
        ({"module": "train", "target": "jobsets"}, "target: 'jobsets' is not known"),
        ({"module": "train", "on_interrupt": "pause"}, "use one of suspend, delete, leave"),
        ({"module": "train", "log_ranks": "²"}, "use all, failed, or ranks"),
        ({"module": "train", "startup_timeout": -5}, "startup_timeout: -5"),
        ({"function": "#" + "x" * 200_000}, "have 200[0-9]{3} characters, and Argo Workflows stores about 60000"),
    ],
)
def test_invalid_inputs_are_errors_when_the_pipeline_is_compiled(tmp_path: Path, inputs: dict, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        compiled(tmp_path, **inputs)


def test_parameters_of_the_pipeline_become_inputs_of_the_step(tmp_path: Path) -> None:
    inputs = compiled(tmp_path, module="train", num_nodes="EPOCHS", checkpoint_dir="WHERE")["inputs"]["parameters"]
    assert inputs["num_nodes"] == {"componentInputParameter": "epochs"}
    assert inputs["checkpoint_dir"] == {"componentInputParameter": "where"}


def test_the_first_pipeline_of_the_documentation_compiles(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/kfp.md").read_text(encoding="utf-8")
    text = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "train.py").write_text("print(1)\n")
    names: dict = {}
    exec(compile(text, str(tmp_path / "retrain.py"), "exec"), names)  # the text of docs/kfp.md
    compiler.Compiler().compile(names["retrain"], str(tmp_path / "pipeline.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text())
    inputs = spec["root"]["dag"]["tasks"]["distributed-train"]["inputs"]["parameters"]
    assert inputs["checkpoint_dir"]["runtimeValue"]["constant"] == "{{$.workspace_path}}/checkpoints"
    assert "workspace" in platform["platforms"]["kubernetes"]["pipelineConfig"]


def test_the_pipeline_of_the_page_about_the_kubeflow_sdk_compiles_without_warnings_about_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (block,) = [each for each in blocks(ROOT / "docs/guides/pytorchjob.md") if each.file == "retrain.py"]
    (tmp_path / "retrain.py").write_text(block.text)  # KFP reads the source of the component
    names = runpy.run_path(str(tmp_path / "retrain.py"))
    compiler.Compiler().compile(names["retrain"], str(tmp_path / "pipeline.yaml"))
    assert all("is not published" in text for text in caplog.messages)
