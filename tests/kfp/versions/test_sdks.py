"""Older SDKs compile every example, and run a training with their local runner.

The local runners of 2.15 and 2.16 do not run conditions and loops correctly (docs/kfp.md), so the examples with them
are compiled only.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SDKS = ROOT / ".venvs" / "kfp-sdks"
VERSIONS = ["2.15.2", "2.16.1"]

COMPILE = """\
import importlib, pathlib, sys
import kfp
from kfp import compiler
assert kfp.__version__ == sys.argv[1], kfp.__version__
for path in sorted(pathlib.Path(sys.argv[2]).glob("*.py")):
    pipeline = getattr(importlib.import_module(path.stem), path.stem)
    compiler.Compiler().compile(pipeline, f"{sys.argv[3]}/{path.stem}.yaml")
"""
TRAIN = """\
import sys
import kfp
from kfp import dsl, local
from stepset_kfp import distributed_train
assert kfp.__version__ == sys.argv[1], kfp.__version__

@dsl.pipeline(name="trains")
def trains(word: str):
    distributed_train(base_dir=sys.argv[2], framework="plain", num_nodes=2, script="train.py", args=[word])

local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[3])
trains(word="given")
"""
SCRIPT = """\
import json, os, pathlib, sys
if os.environ["STEPSET_NODE_RANK"] == "0":
    result = {"nodes": int(os.environ["STEPSET_NUM_NODES"]), "word": sys.argv[1]}
    pathlib.Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))
"""


def run(version: str, program: str, *arguments: object, home: Path) -> None:
    """Runs a program with an older SDK."""
    assert (SDKS / version).is_dir(), "run `make setup-kfp`"
    path = os.pathsep.join(map(str, (SDKS / version, ROOT / "pipelines")))
    command = [sys.executable, "-W", "ignore", "-c", program, version, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path, "STEPSET_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_sdk_compiles_the_examples(version: str, tmp_path: Path) -> None:
    run(version, COMPILE, ROOT / "pipelines", tmp_path, home=tmp_path)
    assert len(list(tmp_path.glob("*.yaml"))) == len(list((ROOT / "pipelines").glob("*.py")))


@pytest.mark.local
@pytest.mark.parametrize("version", VERSIONS)
def test_the_local_runner_of_an_older_sdk_runs_a_training(version: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run(version, TRAIN, tmp_path, tmp_path / "out", home=tmp_path)
    (result,) = (tmp_path / "out").glob("*/distributed-train/result")
    assert result.read_text() == '{"nodes": 2, "word": "given"}'
