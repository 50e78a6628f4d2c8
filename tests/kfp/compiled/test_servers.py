"""Servers of every KFP release from 2.15 accept the compiled pipelines.

The API server parses a pipeline into its release's messages and refuses unknown fields
(backend/src/apiserver/template/v2_template.go); the same messages are in the wheel kfp-pipeline-spec.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kfp import compiler

ROOT = Path(__file__).resolve().parents[3]
SPECS = ROOT / ".venvs" / "kfp-specs"
PIPELINES = sorted(path.stem for path in (ROOT / "pipelines").glob("*.py"))

# Runs in a separate process, because a process can load messages of a name only once.
PARSE = """\
import importlib.util, json, pathlib, sys
from google.protobuf import json_format
path = pathlib.Path(sys.argv[1], "kfp/pipeline_spec/pipeline_spec_pb2.py")
spec = importlib.util.spec_from_file_location("pipeline_spec_pb2", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name in sys.argv[2:]:
    pipeline, *platforms = json.loads(pathlib.Path(name).read_text())
    json_format.ParseDict(pipeline, module.PipelineSpec())
    for platform in platforms:
        json_format.ParseDict(platform, module.PlatformSpec())
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compiles every example and every component; returns the files, as JSON."""
    directory = tmp_path_factory.mktemp("compiled")
    sys.path.insert(0, str(ROOT / "pipelines"))
    try:
        found = {name: getattr(importlib.import_module(name), name) for name in PIPELINES}
    finally:
        sys.path.remove(str(ROOT / "pipelines"))
    for name in ("distributed_train", "wait_for_training", "cleanup_training"):
        found[name] = getattr(importlib.import_module(f"stepset_kfp.training.{name}.component"), name)
    files = []
    for name, component in found.items():
        compiler.Compiler().compile(component, str(directory / f"{name}.yaml"))
        documents = list(yaml.safe_load_all((directory / f"{name}.yaml").read_text()))
        (directory / f"{name}.json").write_text(json.dumps(documents))
        files.append(str(directory / f"{name}.json"))
    return files


def parse(version: str, files: list[str]) -> subprocess.CompletedProcess[str]:
    directory = SPECS / version
    assert directory.is_dir(), "run `make setup-kfp`"
    command = [sys.executable, "-W", "ignore", "-c", PARSE, str(directory), *files]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("version", ["2.15.0", "2.16.1", "2.17.0", "2.17.3"])
def test_a_server_of_the_release_accepts_them(version: str, compiled: list[str]) -> None:
    done = parse(version, compiled)
    assert done.returncode == 0, done.stderr


def test_an_older_server_refuses_the_passthroughs(compiled: list[str]) -> None:
    training = [name for name in compiled if name.endswith("/distributed_train.json")]
    done = parse("2.14.6", training)
    assert done.returncode != 0 and "ParseError" in done.stderr, "therefore the components require 2.15"
