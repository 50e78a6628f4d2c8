"""Results, models and metrics that KFP cannot store do not fail the step."""

import json
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from kfp import dsl
from kfp.dsl.types import artifact_types

from stepset.run_status import Phase, RunStatus
from stepset.spec import parse_job
from stepset_kfp import distributed_train
from stepset_kfp.outputs.artifacts import ModelSettings, write_metrics, write_model
from stepset_kfp.packing import as_text, script_archive
from stepset_kfp.step.train import train
from stepset_kfp.training.distributed_train.component import distributed_train as component
from tests.kfp.backend_rules import open_input, store_output
from tests.kfp.pipelines import one_step, run_pipeline

ODD = """\
import json, os, sys
sys.stdout.buffer.write(b"raw \\xff bytes\\n")
sys.stdout.flush()
metrics = {"loss": float("nan"), "accuracy": 0.5, "half \\ud800": 1.0}
print(json.dumps({"stepset": {"step": 1, "metrics": metrics}}), flush=True)
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({"loss": float("nan"), "best": [float("-inf")], "word": "\\ud800", "large": 10**400}, file)
"""


RELATIVE = """\
import json, os
open("model.pt", "w").write("weights")
json.dump({"model": "model.pt"}, open(os.environ["STEPSET_RESULT_FILE"], "w"))
"""


@pytest.mark.local
def test_numbers_and_characters_that_kfp_cannot_read_are_replaced(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(ODD)
    ran = run_pipeline(
        one_step(lambda: distributed_train(base_dir=tmp_path, framework="plain", num_nodes=1, script="train.py")),
        tmp_path / "out",
    )
    assert ran.error is None, "KFP could read all of it"
    result = json.loads(ran.output("distributed-train", "result").read_text())
    assert (result.get("loss"), result["best"], result["word"]) == (None, [""], "\ufffd")
    artifacts = json.loads(ran.output("distributed-train", "executor_output.json").read_text())["artifacts"]
    assert artifacts["metrics"]["artifacts"][0]["metadata"] == {"accuracy": 0.5, "half \ufffd": 1.0}
    assert "metrics: omitted because not finite, or because of a long name: large" in ran.log


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limits the files that this process writes, to simulate a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def model_of(named: str, own: str) -> tuple[str, dsl.Model]:
    """Returns the message and the artifact of a successful training whose result names a model."""
    status = RunStatus("run", "job", "kubernetes", Phase.SUCCEEDED, result={"model": named})
    model = dsl.Model(name="model", uri=own)
    return write_model(model, status, ModelSettings.of(parse_job({"module": "train", "framework": "plain"}))), model


def test_a_model_that_cannot_be_copied_becomes_a_placeholder(tmp_path: Path) -> None:
    saved = tmp_path / "model.pt"
    saved.write_bytes(bytes(300_000))
    status = RunStatus("run", "job", "local", Phase.SUCCEEDED, result={"model": str(saved)})
    model = dsl.Model(name="model", uri=str(tmp_path / "out" / "model"))
    with files_of_at_most(100_000):
        message = write_model(model, status, ModelSettings.of(parse_job({"module": "train", "framework": "plain"})))
    assert re.fullmatch(r"model: .*model.pt File too large; the artifact records only its location", message)
    assert json.loads(Path(model.path).read_text())["model"] == str(saved)
    assert model.metadata["source"] == str(saved)


def test_a_result_without_a_model_names_the_checkpoint_directory(tmp_path: Path) -> None:
    status = RunStatus("run", "job", "local", Phase.SUCCEEDED, result={"loss": 0.5})
    job = parse_job({"module": "train", "framework": "plain", "checkpoint_dir": str(tmp_path)})
    model = dsl.Model(name="model", uri=str(tmp_path / "out" / "model"))
    message = write_model(model, status, ModelSettings.of(job))
    assert message.startswith("model: the result contains none; the artifact records only the location of checkpoint_")
    assert f"{tmp_path}; write {{'model': path or URI}} to STEPSET_RESULT_FILE in rank 0" in message
    assert model.metadata["source"] == json.loads(Path(model.path).read_text())["checkpoint_dir"] == str(tmp_path)


def local_model(tmp_path: Path, named: str, checkpoint_dir: Path | None = None) -> str:
    """Returns the message about the model that the result of a local run names."""
    status = RunStatus("run", "job", "local", Phase.SUCCEEDED, result={"model": named})
    directory = {} if checkpoint_dir is None else {"checkpoint_dir": str(checkpoint_dir)}
    job = parse_job({"module": "train", "framework": "plain", **directory})
    return write_model(dsl.Model(name="model", uri=str(tmp_path / "out" / "model")), status, ModelSettings.of(job))


def test_a_local_step_reports_a_model_that_a_cluster_would_not_copy(tmp_path: Path) -> None:
    saved = tmp_path / "ckpt" / "model.pt"
    saved.parent.mkdir()
    saved.write_bytes(b"weights")
    copied = f"model: a copy of {saved}"
    note = "; on a cluster, the artifact would record only the location"
    assert local_model(tmp_path, str(saved)).startswith(f"{copied}{note}")
    assert local_model(tmp_path, str(saved), tmp_path / "other").startswith(f"{copied}{note}")
    assert local_model(tmp_path, str(saved), saved.parent) == copied


def test_a_relative_path_of_a_model_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"a file beside the step that no rank has written")
    expected = "is a relative path; the result must contain an absolute path; the artifact records only its location"
    assert local_model(tmp_path, "model.pt").startswith(f"model: model.pt {expected}")
    message, _ = model_of("ckpt/model.pt", str(tmp_path / "out" / "model"))
    assert message.startswith(f"model: ckpt/model.pt {expected}"), "on a cluster, too"


@pytest.mark.local
@pytest.mark.parametrize("packed", [False, True])
def test_a_local_step_copies_a_relative_path_from_the_directory_of_the_ranks(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    """The ranks of packed code run in a temporary directory, which the step deletes after the run."""
    monkeypatch.chdir(tmp_path)
    Path("model.pt").write_text("a file that the ranks of packed code have not written")
    given: dict[str, Any] = {name: spec.default for name, spec in component.component_spec.inputs.items()}
    code = {"script": "train.py", "packed_code": as_text(script_archive("train.py", RELATIVE.encode()))}
    given |= code if packed else {"command": [sys.executable, "-c", RELATIVE]}
    outputs = {name: str(tmp_path / "out" / name) for name in ("run", "result")}
    files = {name: dsl.Artifact(name=name, uri=str(tmp_path / "out" / name)) for name in ("report", "model")}
    metrics = {"metrics": dsl.Metrics(name="metrics", uri=str(tmp_path / "out" / "metrics"))}
    train({**given, "framework": "plain", "backend": "local", **outputs, **files, **metrics})
    note = "on a cluster, the artifact would record only the location, because"
    relative = "a relative path; the result must contain an absolute path"
    printed = capsys.readouterr().out
    if packed:
        assert f"stepset: model: model.pt is {relative}; the artifact records only its location\n" in printed
    else:
        assert f"stepset: model: a copy of model.pt; {note} model.pt is {relative}\n" in printed
        assert Path(files["model"].path).read_text() == "weights"


class TestUri:
    ROOTS = ("s3://bucket/v2/digits/7d3c", "gs://bucket/digits/7d3c", "minio://mlpipeline/v2/artifacts/digits/7d3c")
    NAMED = (
        "s3://models/a.pt",
        "s3://bucket/v2/digits/7d3c",
        "s3://bucket/v2/digits/7d3c-other/a.pt",
        "s3://bucket/v2/digits/7d3c/own/a.pt",
        "gs://models/a.pt",
        "gs://bucket/digits/7d3c/own",
        "minio://mlpipeline/v2/artifacts/digits/7d3c/own/",
        "minio://models/a",
        "oci://registry.example/models/a:1",
        "hf://org/model",
        "https://models.example/a.pt",
        "abfss://container@account/a",
    )

    @pytest.fixture(autouse=True)
    def mounts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replaces KFP's directories of object stores by one of the test."""
        for name in ("_S3", "_GCS", "_MINIO"):
            monkeypatch.setattr(artifact_types, f"{name}_LOCAL_MOUNT_PREFIX", f"{tmp_path}/{name}/")

    @pytest.mark.parametrize("named", NAMED)
    @pytest.mark.parametrize("root", ROOTS)
    def test_any_uri_is_accepted_by_the_launcher_of_the_step_and_of_later_tasks(self, root: str, named: str) -> None:
        _, model = model_of(named, f"{root}/train/12/model")
        store_output(model.uri, root)
        open_input(model.uri, root)
        assert model.metadata["uri"] == named

    @pytest.mark.parametrize(
        ("root", "named"),
        [
            (ROOTS[0], "s3://bucket/v2/digits/7d3c/own/a.pt"),
            (ROOTS[1], "gs://bucket/digits/7d3c/own"),
            (ROOTS[2], "minio://mlpipeline/v2/artifacts/digits/7d3c/own/"),
            *((root, "oci://registry.example/models/a:1") for root in ROOTS),
        ],
    )
    def test_a_uri_that_kfp_accepts_is_the_artifacts_own(self, root: str, named: str) -> None:
        message, model = model_of(named, f"{root}/train/12/model")
        assert (model.uri, message) == (named, f"model: {named}")

    def test_a_uri_that_kfp_refuses_is_in_the_metadata_and_in_a_placeholder(self) -> None:
        own = "s3://bucket/v2/digits/7d3c/train/12/model"
        message, model = model_of("s3://models/a.pt", own)
        assert model.uri == own
        assert json.loads(Path(model.path).read_text())["model"] == "s3://models/a.pt"
        assert "the artifact records it as metadata 'uri'" in message

    @pytest.mark.parametrize("root", ROOTS)
    def test_a_uri_with_dots_which_the_launcher_reads_as_a_file_of_the_step_is_refused(self, root: str) -> None:
        own = f"{root}/train/12/model"
        named = f"{root}/{'../' * 9}var/run/secrets/kubernetes.io/serviceaccount/token"
        _, model = model_of(named, own)
        assert (model.uri, model.metadata["uri"]) == (own, named)

    @pytest.mark.parametrize("own", [f"{ROOTS[0]}/train/12/model", "/out/model"])
    def test_a_uri_with_a_space_is_in_the_metadata(self, tmp_path: Path, own: str) -> None:
        own = own.replace("/out", str(tmp_path))
        named = "s3://models/my model"
        message, model = model_of(named, own)
        assert (
            message == f"model: KFP cannot use {named} as an artifact's URI; the artifact records it as metadata 'uri'"
        )
        assert (model.uri, model.metadata["uri"]) == (own, named)

    def test_the_local_runner_uploads_nothing_and_gets_any_uri(self, tmp_path: Path) -> None:
        _, model = model_of("s3://models/a.pt", str(tmp_path / "model"))
        assert model.uri == "s3://models/a.pt"

    def test_a_surrogate_or_a_space_in_the_name_of_a_model_is_text_that_kfp_reads(self) -> None:
        for named in ("s3://a/\ud800", "s3://a b", "/data/\udfff"):
            _, model = model_of(named, "s3://bucket/v2/digits/7d3c/train/12/model")
            ParseDict(model.metadata, Struct()).SerializeToString()


def test_a_metric_with_a_name_that_mlmd_cannot_store_is_omitted() -> None:
    status = RunStatus("run", "job", "local", Phase.SUCCEEDED, result={"é" * 128: 1.0, "é" * 127: 2.0})
    metrics = dsl.Metrics(name="metrics", uri="/tmp/metrics")
    assert write_metrics(metrics, status) == ["é" * 128]
    assert list(metrics.metadata) == ["é" * 127]
