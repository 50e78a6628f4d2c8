"""`distributed_train(...)` in a pipeline: errors are raised when the pipeline is compiled."""

import os
from pathlib import Path

import pytest
import yaml
from kfp import compiler, dsl

from stepset.errors import BadInputError
from stepset_kfp import distributed_train
from stepset_kfp.packing import unpack


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


def test_a_script_is_packed_into_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    inputs = compiled(tmp_path, script="train.py")["inputs"]["parameters"]
    assert inputs["script"]["runtimeValue"]["constant"] == "train.py"
    assert len(inputs["packed"]["runtimeValue"]["constant"]) > 50


def test_a_job_file_is_read_and_its_script_is_packed(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/job.yaml").write_text("framework: {kind: torch, launcher: none}\nscript: train.py\n")
    (tmp_path / "jobs/train.py").write_text("print(1)\n")
    inputs = compiled(tmp_path, job="jobs/job.yaml", num_nodes=2)["inputs"]["parameters"]
    assert inputs["job"]["runtimeValue"]["constant"]["framework"] == {"kind": "torch", "launcher": "none"}
    assert "packed" in inputs


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
        unpack(given["packed"], tmp_path)
        assert (tmp_path / "train.py").exists() and not (tmp_path / ".env").exists()
        expected = "code: 1 file is ignored because of .gitignore; `stepset explain --files` lists what is shipped"
        assert [record.getMessage() for record in caplog.records] == [expected]

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
        ({"function": "#" + "x" * 200_000}, "a step gets them as one argument"),
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
    page = (Path(__file__).resolve().parents[2] / "docs/kfp.md").read_text(encoding="utf-8")
    text = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "train.py").write_text("print(1)\n")
    names: dict = {}
    exec(compile(text, str(tmp_path / "retrain.py"), "exec"), names)  # the text of docs/kfp.md
    compiler.Compiler().compile(names["retrain"], str(tmp_path / "pipeline.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text())
    inputs = spec["root"]["dag"]["tasks"]["distributed-train"]["inputs"]["parameters"]
    assert inputs["checkpoint_dir"]["runtimeValue"]["constant"] == "{{$.workspace_path}}/checkpoints"
    assert "workspace" in platform["platforms"]["kubernetes"]["pipelineConfig"]
