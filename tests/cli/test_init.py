"""`stepset init` writes a job file that passes `stepset validate`, and overwrites nothing without --force."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Cli

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("script", "framework"),
    [
        ("import torch.distributed as dist\n", "torch"),
        ("from torch import distributed\n", "torch"),
        ("def main():\n    import deepspeed, torch\n", "deepspeed"),
        ("import jax\nimport numpy\n", "jax"),
        ("from mpi4py import MPI\nimport torch\n", "mpi"),
        ("import mlx.core as mx\n", "mlx"),
        ("from xgboost import collective\n", "xgboost"),
        ("import lightning as L\n", "torch"),
        ("from accelerate import Accelerator\n", "torch"),
        ("from . import torch\nimport torchvision_like\n", "plain"),
        ("print('mpi4py')\n", "plain"),
    ],
)
def test_the_imports_choose_the_framework_and_the_file_is_valid(
    cli: Cli, tmp_path: Path, script: str, framework: str
) -> None:
    (tmp_path / "train.py").write_text(script)
    made = cli("init", "train.py")
    assert made.code == 0 and made.out.startswith(f"wrote job.yaml: framework {framework}, because train.py imports")
    assert yaml.safe_load((tmp_path / "job.yaml").read_text())["framework"] == framework
    checked = cli("validate", "job.yaml")
    assert checked.code == 0, checked.err


@pytest.mark.parametrize("script", sorted((REPOSITORY / "examples").glob("*/*.py")), ids=lambda path: path.parent.name)
def test_the_file_for_every_example_is_valid(cli: Cli, script: Path) -> None:
    assert cli("init", str(script), "-p", "2").code == 0
    checked = cli("validate", "job.yaml")
    assert checked.code == 0, checked.err


def test_a_script_that_imports_its_own_package_has_a_note(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/main.py").write_text("import trainer.data\n")
    assert "use module: trainer.main and code: ." in cli("init", "trainer/main.py").err


@pytest.mark.parametrize("path", ["trainer/main.py", "trainer/main/__main__.py"])
@pytest.mark.parametrize(("file", "code"), [("train.yaml", "."), ("jobs/train.yaml", "..")])
def test_the_file_for_a_module_ships_the_directory_of_its_package(
    cli: Cli, tmp_path: Path, path: str, file: str, code: str
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("import torch\n")
    made = cli("init", "-m", "trainer.main", file)
    assert made.code == 0 and made.out.startswith(f"wrote {file}: framework torch, because {path} imports torch\n")
    job = yaml.safe_load((tmp_path / file).read_text())
    assert (job["module"], job["code"]) == ("trainer.main", code)
    assert "# List data, checkpoints and outputs in .stepsetignore" in (tmp_path / file).read_text()
    checked = cli("validate", file)
    assert checked.code == 0, checked.err


def test_paths_with_spaces_and_other_directories(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "t: #1.py").write_text("import jax\n")
    (tmp_path / "jobs").mkdir()
    made = cli("init", "a b/t: #1.py", "jobs/my job.yaml")
    assert made.out.endswith("next: stepset validate 'jobs/my job.yaml'; stepset run 'jobs/my job.yaml'\n")
    assert cli("validate", "jobs/my job.yaml").code == 0


def test_an_existing_file_is_kept_without_force(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import jax\n")
    (tmp_path / "job.yaml").write_text("mine")
    refused = cli("init", "train.py")
    assert (refused.code, refused.errors) == (
        2,
        ["stepset: job.yaml: exists; add --force to overwrite it, or give another FILE"],
    )
    assert (tmp_path / "job.yaml").read_text() == "mine"
    assert cli("init", "train.py", "--force").code == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("missing.py",), "stepset: missing.py: no such file; check the path"),
        (("broken.py",), "stepset: broken.py: line 1: not readable as Python: "),
        (("good.py", "no/such/job.yaml"), "stepset: no/such/job.yaml: cannot be written: /"),
        (("good.py", "job.txt"), "stepset: job.txt: not the name of a job file; end it with .yaml"),
        (("job.yaml",), "stepset: job.yaml: not a script; give the training script (.py)"),
        ((), "stepset: the program is missing; give a script (train.py), or -m MODULE"),
        (("-m", "a.b"), "stepset: --module: there is neither a/b.py nor a/b/__main__.py in /"),
        (("-m", "good", "good.py", "job.yaml"), "stepset: good.py and --module are given; give only one of them"),
        (("-m", "../good"), "stepset: --module: '../good' is not the name of a module; "),
        (("-m", ""), "stepset: --module: '' is not the name of a module; "),
        (("nul.py",), "stepset: nul.py: not readable as Python: "),
    ],
)
def test_bad_input_is_one_line(cli: Cli, tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "good.py").write_text("")
    (tmp_path / "nul.py").write_bytes(b"x = 1\0")
    refused = cli("init", *words)
    assert refused.code == 2 and len(refused.errors) == 1 and refused.err.startswith(error), refused
