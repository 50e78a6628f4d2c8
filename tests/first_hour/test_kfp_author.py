"""The first hour of a pipeline author: the README's pipeline, its compilation, and a training that fails."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.code_blocks import ROOT
from tests.first_hour.programs import PIPE, SCREENS, Screen, run_program
from tests.first_hour.readme import code_after, write_job

pytestmark = pytest.mark.kfp

PIPELINE = code_after("From [a Kubeflow pipeline]")
PAGE = (ROOT / "docs" / "kfp.md").read_text(encoding="utf-8")
LOCAL = ("local.init(", "retrain()")
"""The starts of the two lines with which the README's pipeline runs on this machine."""
COMPILE = re.findall(r"`([^`\n]*\bcompiler\b[^`\n]*)`", PAGE)
"""The two lines with which docs/kfp.md compiles a pipeline, instead of running it."""


def run_pipeline(place: Path, text: str, screen: Screen = PIPE) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs a pipeline file beside the README's job; returns also the lines of the step, without KFP's indentation."""
    write_job(place)
    (place / "pipeline.py").write_text(text, "utf-8")
    done = run_program(place, "python", "pipeline.py", screen=screen)
    return done, [line.removeprefix("    ") for line in done.stdout.splitlines()]


def test_the_extra_kfp_installs_what_a_pipeline_and_its_steps_import() -> None:
    program = (
        "import sys, kfp.dsl, stepset_kfp.authoring.distributed_train, stepset_kfp.step.train\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: {*map(_package, needed)} for extra, needed in project["optional-dependencies"].items()}
    installed = {*map(_package, project["dependencies"]), *extras["kfp"]}
    if "stepset[kubernetes]" in project["optional-dependencies"]["kfp"]:
        installed |= extras["kubernetes"]
    imported = {*done.stdout.split()}
    assert "kfp" in imported
    assert imported & set().union(*extras.values()) <= installed


def test_without_kfp_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['kfp'] = None; from stepset_kfp import distributed_train"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "stepset.errors.BadInputError: the Python package kfp is missing; in a checkout of stepset's repository, run:"
        " pip install '.[kfp]'"
    )


def _package(requirement: str) -> str:
    """The package of a requirement such as `kfp>=2.15`."""
    return re.split(r"[^\w-]", requirement)[0]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_pipeline_of_the_readme_trains(tmp_path: Path, screen: Screen) -> None:
    done, lines = run_pipeline(tmp_path, PIPELINE, screen)
    assert done.returncode == 0, done.stdout
    assert "[rank 0] training with ['--epochs', '3']" in lines
    assert any(re.fullmatch(r"stepset: run train-\w+ succeeded in .*s", line) for line in lines), done.stdout
    assert "    result: {'world_size': 4.0}" in done.stdout.splitlines()
    assert "image" not in done.stdout.partition("Running pipeline")[0]


def test_the_pipeline_of_the_readme_is_compiled(tmp_path: Path) -> None:
    definition = "".join(line for line in PIPELINE.splitlines(True) if not line.startswith(LOCAL))
    assert len(PIPELINE.splitlines()) - len(definition.splitlines()) == len(LOCAL)
    done, _ = run_pipeline(tmp_path, definition + "\n".join(COMPILE))
    assert done.returncode == 0, done.stdout
    pipeline, *_ = yaml.safe_load_all((tmp_path / "retrain.yaml").read_text("utf-8"))
    assert pipeline["pipelineInfo"]["name"] == "retrain"
    assert "epochs" in pipeline["root"]["inputDefinitions"]["parameters"]


@pytest.mark.parametrize("screen", SCREENS)
def test_a_step_that_fails_ends_its_log_with_the_diagnosis(tmp_path: Path, screen: Screen) -> None:
    text = PIPELINE.replace('"--epochs", epochs', '"fail"')
    assert text != PIPELINE
    done, lines = run_pipeline(tmp_path, text, screen)
    assert done.returncode == 1
    what = ": UserError: rank 3 (pod node-1) exited with code 1: ValueError: bad batch"
    at = next(at for at, line in enumerate(lines) if line.startswith("stepset: run train-") and line.endswith(what))
    assert lines[at + 1 : at + 3] == [
        "stepset:   first failure rank 3, pod node-1, on node 1, exit code 1",
        "stepset:   error         ValueError: bad batch",
    ]
    assert not any("running" in line for line in lines[at:]), done.stdout
    assert not [line for line in lines if "stepset:" in line and "\x1b" in line]
