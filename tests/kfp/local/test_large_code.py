"""Code beyond a few kilobytes is an artifact; the inputs of a pipeline's steps stay within what Argo stores."""

# KFP evaluates annotations: no `from __future__ import annotations`.
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, local

from stepset.errors import BadInputError, InfrastructureError
from stepset.spec.load import parse_job
from stepset_kfp import distributed_train
from stepset_kfp.authoring.budget import LIMIT
from stepset_kfp.authoring.code_store import upload
from stepset_kfp.authoring.s3 import sign
from stepset_kfp.encoding import with_decoded_inputs
from stepset_kfp.job_inputs import job_mapping
from stepset_kfp.packing import script_archive
from stepset_kfp.step.step_job import read
from stepset_kfp.training.distributed_train.component import distributed_train as component
from tests.kfp.backend_rules import arrived
from tests.kfp.pipelines import run_pipeline

HASHES = """\
import hashlib, json, os, pathlib
data = pathlib.Path("weights.bin").read_bytes()
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({"digest": hashlib.sha256(data).hexdigest()}, file)
"""


def code(directory: Path, name: str, size: int) -> Path:
    """Writes a code directory with a file of random bytes, which cannot be compressed."""
    (directory / name).mkdir()
    (directory / name / "train.py").write_text(HASHES)
    (directory / name / "weights.bin").write_bytes(os.urandom(size))
    return directory / name


def two_steps(base: Path) -> Callable[..., Any]:
    @dsl.pipeline(name="test-large-code")
    def pipeline() -> None:
        settings = {"base_dir": base, "framework": "plain", "num_nodes": 1, "script": "train.py"}
        distributed_train(name="one", code="a", **settings)
        distributed_train(name="two", code="b", **settings)

    return pipeline


def compiled(pipeline: Callable[..., Any], tmp_path: Path) -> dict[str, Any]:
    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec: dict[str, Any] = yaml.safe_load((tmp_path / "pipeline.yaml").read_text())
    return spec


@pytest.mark.local
def test_two_steps_with_200_kilobytes_of_code_each_run_with_the_local_runner(tmp_path: Path, home: Path) -> None:
    digests = [
        hashlib.sha256((code(tmp_path, name, 200_000) / "weights.bin").read_bytes()).hexdigest() for name in "ab"
    ]
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "out"))
    ran = run_pipeline(two_steps(tmp_path), tmp_path / "out")
    assert ran.error is None
    results = [json.loads(ran.output(f"distributed-train{n}", "result").read_text()) for n in ("", "-2")]
    assert [each["digest"] for each in results] == digests


def test_with_a_store_the_pipeline_contains_only_the_uri_of_large_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        code(tmp_path, name, 200_000)
    with object_store() as (address, objects):
        monkeypatch.setenv("STEPSET_KFP_CODE_STORE", "s3://bucket/code")
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
        spec = compiled(two_steps(tmp_path), tmp_path)
    assert (tmp_path / "pipeline.yaml").stat().st_size < 40_000
    executors = spec["deploymentSpec"]["executors"].values()
    uris = [each["importer"]["artifactUri"]["constant"] for each in executors if "importer" in each]
    assert len(uris) == 2
    for uri in uris:
        archive = objects[f"/{uri.removeprefix('s3://')}"]
        assert uri == f"s3://bucket/code/{hashlib.sha256(archive).hexdigest()}.tar.gz"
    tasks = spec["root"]["dag"]["tasks"]
    task = tasks["distributed-train"]["inputs"]
    assert task["artifacts"]["files"]["taskOutputArtifact"]["producerTask"] == "importer"
    assert "packed_code" not in task["parameters"]
    names = {name: each["taskInfo"]["name"] for name, each in tasks.items() if name.startswith("importer")}
    assert names == {"importer": "importer", "importer-2": "importer-2"}, "KFP's driver finds an importer by this name"


def test_a_store_at_google_gets_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store() as (address, objects):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        uri = upload(b"archive", "gs://bucket/code")
    digest = hashlib.sha256(b"archive").hexdigest()
    assert uri == f"gs://bucket/code/{digest}.tar.gz"
    (body,) = objects.values()
    assert f'"name": "code/{digest}.tar.gz"'.encode() in body and b"\r\n\r\narchive\r\n" in body


def test_small_code_stays_in_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code(tmp_path, "a", 10)
    code(tmp_path, "b", 10)
    monkeypatch.setenv("STEPSET_KFP_CODE_STORE", "s3://bucket/code")
    task = compiled(two_steps(tmp_path), tmp_path)["root"]["dag"]["tasks"]["distributed-train"]
    assert "packed_code" in task["inputs"]["parameters"]


def test_the_signature_is_that_of_amazons_example() -> None:
    # docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, "Example: PUT Object"
    headers = {
        "date": "Fri, 24 May 2013 00:00:00 GMT",
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
    }
    signed = sign(
        "PUT",
        "https://examplebucket.s3.amazonaws.com/test%24file.text",
        headers,
        b"Welcome to Amazon S3.",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "us-east-1",
    )
    expected = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    assert signed["authorization"].endswith(f",Signature={expected}")


@pytest.mark.parametrize(
    ("store", "variables", "error", "message"),
    [
        ("ftp://host/code", {}, BadInputError, r"'ftp://host/code' is not a store; give s3://"),
        ("s3://bucket/code", {}, BadInputError, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"),
        (
            "s3://refused/code",
            {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"},
            InfrastructureError,
            r"s3://refused/code/\w+\.tar\.gz cannot be written: HTTP 403",
        ),
    ],
    ids=["scheme", "credentials", "refused"],
)
def test_a_store_that_cannot_be_written_is_an_error_when_the_pipeline_is_compiled(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    variables: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    code(tmp_path, "a", 20_000)
    with object_store() as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("STEPSET_KFP_CODE_STORE", store)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(error, match=message):
            two_steps(tmp_path)


def test_inputs_that_argo_would_refuse_are_an_error_that_names_the_largest(tmp_path: Path) -> None:
    for name in "ab":
        code(tmp_path, name, 30_000)
    with pytest.raises(
        BadInputError,
        match=r"^task distributed-train-2 \(two\): .* have \d{5} characters, and Argo Workflows stores about 60000"
        r" per pipeline; the largest are"
        r" packed_code of (one|two) \(4\d{4}\), packed_code of (one|two) \(4\d{4}\), .*set STEPSET_KFP_CODE_STORE to",
    ):
        two_steps(tmp_path)


def test_the_remaining_budget_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code(tmp_path, "a", 20_000)
    code(tmp_path, "b", 20_000)
    with caplog.at_level(logging.INFO):
        two_steps(tmp_path)
    first, second = (record for record in caplog.records if "remain" in record.getMessage())
    assert (first.levelname, second.levelname) == ("INFO", "WARNING")
    places = [record.getMessage().partition(": ")[0] for record in (first, second)]
    assert places == ["task distributed-train (one)", "task distributed-train-2 (two)"]
    remaining = int(second.getMessage().partition(": ")[2].split()[0])
    assert 0 < remaining < LIMIT / 4
    assert "the largest are packed_code of " in second.getMessage()
    assert "set STEPSET_KFP_CODE_STORE" not in first.getMessage()
    assert "set STEPSET_KFP_CODE_STORE" in second.getMessage()


def test_a_pipelines_budget_is_its_own(tmp_path: Path) -> None:
    code(tmp_path, "a", 20_000)
    code(tmp_path, "b", 20_000)
    for _ in range(3):
        two_steps(tmp_path)


@pytest.mark.parametrize("volume", [{"image": "registry.example/code:1", "path": "src"}, {"claim": "c", "path": "d"}])
def test_code_on_a_volume_or_in_an_image_needs_no_upload(tmp_path: Path, volume: dict[str, str]) -> None:
    @dsl.pipeline(name="test-volume")
    def pipeline() -> None:
        distributed_train(base_dir=tmp_path, code=volume, module="train", image="example/python:1")

    spec = compiled(pipeline, tmp_path)
    values = arrived(spec["root"]["dag"]["tasks"]["distributed-train"], {})
    job = parse_job(job_mapping(with_decoded_inputs(values, values)))
    assert job.code_volume is not None
    assert {name: value for name, value in job.to_dict()["code"].items() if name in volume} == volume


class TestStep:
    def given(self, path: Path, uri: str) -> dict[str, Any]:
        defaults = {name: spec.default for name, spec in component.component_spec.inputs.items()}
        return {
            **defaults,
            "script": "train.py",
            "framework": "plain",
            "files": SimpleNamespace(path=str(path), uri=uri),
        }

    def test_it_unpacks_the_artifact(self, tmp_path: Path) -> None:
        archive = script_archive("train.py", b"print(1)\n")
        (tmp_path / "file").write_bytes(archive)
        uri = f"s3://bucket/{hashlib.sha256(archive).hexdigest()}.tar.gz"
        (tmp_path / "to").mkdir()
        inputs = read(self.given(tmp_path / "file", uri), tmp_path / "to")
        assert (inputs.base_dir / "train.py").read_text() == "print(1)\n"

    def test_an_artifact_that_was_replaced_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(script_archive("train.py", b"print(2)\n"))
        with pytest.raises(BadInputError, match="has changed since the pipeline was compiled"):
            read(self.given(tmp_path / "file", f"s3://bucket/{'0' * 64}.tar.gz"), tmp_path)

    def test_an_artifact_that_is_missing_is_an_error_with_the_remedy(self, tmp_path: Path) -> None:
        with pytest.raises(BadInputError, match=r"/on/a/laptop cannot be read: .*STEPSET_KFP_CODE_STORE"):
            read(self.given(tmp_path / "missing", "/on/a/laptop"), tmp_path)


@contextmanager
def object_store() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yields the address of a server that keeps what it gets, except for the bucket `refused`, and the objects."""
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Type"] == "application/x-www-form-urlencoded":
                content = b""  # moto parses the content of a form
            digest = hashlib.sha256(content).hexdigest()
            allowed = digest == self.headers["x-amz-content-sha256"] and not self.path.startswith("/refused/")
            if allowed:
                objects[self.path] = content
            self.send_response(200 if allowed else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:  # an upload to Google's store
            objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", objects
        finally:
            server.shutdown()
            thread.join()
