"""docs/kfp.md, docs/guides/sweeps.md and docs/guides/functions.md: the pipelines of the pages run on this machine."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.code_blocks import ROOT, blocks

pytestmark = pytest.mark.local

PAGE, SWEEPS, FUNCTION = (
    {block.file: block.text for block in blocks(ROOT / page) if block.file}
    for page in ("docs/kfp.md", "docs/guides/sweeps.md", "docs/guides/functions.md")
)
LOCAL = """\
import os, tempfile
from kfp import local

workspace = tempfile.mkdtemp(dir=os.getcwd())
local.init(local.SubprocessRunner(use_venv=False), pipeline_root="out", workspace_root=workspace)
"""


def run(
    directory: Path, *command: str, program: str = "", files: Mapping[str, str] = PAGE
) -> subprocess.CompletedProcess[str]:
    """Writes the files of a page and run.py, and runs a command of Python."""
    assert set(PAGE) == {"train.py", "dataset.py", "pipeline.py", "test_pipeline.py", "several_nodes.py"}
    for name, text in {**files, "run.py": program}.items():
        (directory / name).write_text(text, encoding="utf-8")
    command = (sys.executable, "-W", "ignore", *command)
    return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(
    ("command", "published"),
    [(["-m", "pytest", "test_pipeline.py"], True), (["run.py"], False)],
    ids=["test", "condition"],
)
def test_the_complete_pipeline_publishes_the_model_if_the_condition_is_true(
    tmp_path: Path, home: Path, command: list[str], published: bool
) -> None:
    done = run(tmp_path, *command, program=f"{LOCAL}from pipeline import means\n\nmeans(minimum=9.0)\n")
    assert done.returncode == 0, done.stdout
    # The test of the page passes only if the model is published. It reads all lines of the steps.
    assert ("1 passed" in done.stdout) == published, done.stdout
    assert "published: " not in done.stdout, done.stdout


def test_a_training_reads_the_dataset_of_an_earlier_step(tmp_path: Path, home: Path) -> None:
    done = run(tmp_path, "run.py", program=f"{LOCAL}from dataset import dataset\n\ndataset()\n")
    assert done.returncode == 0, done.stdout
    assert '"mean": 3.0' in (next(tmp_path.glob("out/*/distributed-train/result"))).read_text()


def test_the_best_run_of_a_sweep_is_chosen_by_its_loss(tmp_path: Path, home: Path) -> None:
    done = run(tmp_path, "run.py", program=f"{LOCAL}from best_run import best_run\n\nbest_run()\n", files=SWEEPS)
    assert done.returncode == 0, done.stdout
    (output,) = tmp_path.glob("out/*/best/executor_output.json")
    assert json.loads(output.read_text())["parameterValues"]["Output"] == {"lr": 0.3, "loss": 0.0}


def test_the_function_of_the_guide_runs_as_a_step(tmp_path: Path, home: Path) -> None:
    program = f"{LOCAL}from fit_pipeline import fit_pipeline\n\nfit_pipeline()\n"
    done = run(tmp_path, "run.py", program=program, files=FUNCTION)
    assert done.returncode == 0, done.stdout
    (output,) = tmp_path.glob("out/*/fit/executor_output.json")
    model = Path(json.loads(output.read_text())["parameterValues"]["Output"]["model"])
    assert model.name == "fit.pt"


@pytest.mark.parametrize(
    ("name", "files"),
    [("dataset", PAGE), ("several_nodes", PAGE), ("best_run", SWEEPS), ("fit_pipeline", FUNCTION)],
)
def test_a_pipeline_of_a_page_is_compiled_without_a_warning(
    tmp_path: Path, name: str, files: Mapping[str, str]
) -> None:
    program = (
        f"from kfp import compiler\nfrom {name} import {name}\ncompiler.Compiler().compile({name}, 'pipeline.yaml')\n"
    )
    done = run(tmp_path, "run.py", program=program, files=files)
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if "is not published" not in line] == []
