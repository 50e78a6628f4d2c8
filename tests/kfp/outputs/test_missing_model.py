"""A step fails if the training has succeeded, but has not written the model that its result names."""

import json
from pathlib import Path

import pytest
from kfp import dsl

from stepset.run_status import Phase, RunStatus
from stepset.spec import parse_job
from stepset_kfp import distributed_train
from stepset_kfp.outputs.artifacts import ModelSettings, write_model
from stepset_kfp.outputs.missing_model import MissingModelError
from tests.kfp.pipelines import run_pipeline

SHARED = Path("/dev/shm")
"""A directory of this machine that is a mount point, as a volume of a step is."""
REMEDY = "write the model to this path before rank 0 writes the result, or name no model in the result"


def write(tmp_path: Path, named: Path | str, backend: str = "local", checkpoint_dir: Path | None = None) -> dsl.Model:
    """Writes the model of a successful run, and returns the artifact."""
    status = RunStatus("fit-1", "fit", backend, Phase.SUCCEEDED, result={"model": str(named)})
    directory = {} if checkpoint_dir is None else {"checkpoint_dir": str(checkpoint_dir)}
    job = parse_job({"module": "train", "framework": "plain", **directory})
    model = dsl.Model(name="model", uri=str(tmp_path / "out" / "model"))
    write_model(model, status, ModelSettings.of(job))
    return model


def error(tmp_path: Path, named: Path, backend: str = "local", checkpoint_dir: Path | None = None) -> str:
    """Returns the part of the error that differs between the tests."""
    with pytest.raises(MissingModelError) as raised:
        write(tmp_path, named, backend, checkpoint_dir)
    start = f"run fit-1 succeeded, but its result names the model {str(named)!r}, which "
    text = str(raised.value)
    assert text.startswith(start) and text.endswith(f"; {REMEDY}")
    return text.removeprefix(start).removesuffix(f"; {REMEDY}")


def test_the_error_states_what_exists_instead(tmp_path: Path) -> None:
    directory = tmp_path / "ckpt"
    its = f"does not exist; its directory {str(directory)!r}"
    assert error(tmp_path, directory / "model.pt") == f"{its} does not exist"
    directory.mkdir()
    assert error(tmp_path, directory / "model.pt") == f"{its} is empty"
    for number in range(1, 7):
        (directory / f"step-{number}").touch()
    listed = "'step-1', 'step-2', 'step-3', 'step-4', 'step-5', ..."
    assert error(tmp_path, directory / "model.pt") == f"{its} contains {listed}"
    (directory / "modl.pt").touch()
    assert error(tmp_path, directory / "model.pt") == f"does not exist; did you mean {str(directory / 'modl.pt')!r}?"


def test_an_empty_directory_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert error(tmp_path, tmp_path / "model") == "is an empty directory"
    (tmp_path / "model" / "weights").touch()
    assert write(tmp_path, tmp_path / "model").metadata["source"] == str(tmp_path / "model")


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ckpt").touch()
    assert "does not exist" in error(tmp_path, tmp_path / "ckpt" / "model.pt")


def test_on_a_cluster_only_a_volume_of_the_step_is_checked(tmp_path: Path) -> None:
    missing = SHARED / tmp_path.name / "model.pt"
    assert "does not exist" in error(tmp_path, missing, "kubernetes", SHARED)
    for checkpoint_dir in (None, tmp_path):  # the pods may have a volume there that the step does not have
        artifact = write(tmp_path, tmp_path / "model.pt", "kubernetes", checkpoint_dir)
        assert json.loads(Path(artifact.path).read_text())["model"] == str(tmp_path / "model.pt")


def test_a_link_to_a_directory_of_the_training_pods_is_no_error(tmp_path: Path) -> None:
    link = SHARED / f"stepset-{tmp_path.name}"
    link.symlink_to("/a directory of the pods")
    try:
        artifact = write(tmp_path, link / "model.pt", "kubernetes", SHARED)
    finally:
        link.unlink()
    assert artifact.metadata["source"] == str(link / "model.pt")


@pytest.mark.parametrize("named", ["resnet50", "org/model", "a\0b", f"/{'x' * 300}"])
def test_the_name_of_a_model_or_a_path_that_cannot_exist_is_recorded(tmp_path: Path, named: str) -> None:
    assert write(tmp_path, named).metadata["source"] == named


@pytest.mark.local
def test_the_step_fails_before_a_later_step_reads_the_model(tmp_path: Path, home: Path) -> None:
    program = "import json, os; json.dump({'model': '/ckpt/model.pt'}, open(os.environ['STEPSET_RESULT_FILE'], 'w'))"

    @dsl.component(base_image="python:3.12", install_kfp_package=False)
    def publish(model: dsl.Input[dsl.Model]):
        print("published:", model.path)

    @dsl.pipeline(name="missing-model")
    def pipeline() -> None:
        publish(model=distributed_train(framework="plain", function=program).outputs["model"])

    ran = run_pipeline(pipeline, tmp_path / "out")
    assert ran.error is not None
    (line,) = [line.strip() for line in ran.log.splitlines() if "which does not exist" in line]
    assert line.startswith("stepset: run ") and line.endswith(REMEDY)
    assert "published: " not in ran.log and "Traceback" not in ran.log.partition("stepset: run")[2].partition(REMEDY)[0]
