"""The components' folders have the form that kubeflow/pipelines-components requires (its docs/CONTRIBUTING.md)."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "components/stepset_kfp/training"
NAMES = ["cleanup_training", "distributed_train", "wait_for_training"]
# scripts/validate_metadata there requires these fields in this order; the optional ones may be anywhere.
REQUIRED = ["name", "stability", "dependencies", "lastVerified"]
OPTIONAL = {"tags", "ci", "links"}
SEMANTIC = re.compile(r"(==|>=|<=)?\d+\.\d+\.\d+")

# In a checkout of the catalogue, KFP is installed and stepset is not.
COMPILE = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("stepset", "stepset_kfp"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from importlib import import_module
from kfp import compiler
name, out = sys.argv[1:]
compiler.Compiler().compile(getattr(import_module(f"components.training.{name}"), name), out)
"""


def test_the_list_of_names_is_complete() -> None:
    assert sorted(path.parent.name for path in TRAINING.glob("*/component.py")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_its_files_exist_and_its_metadata_is_valid(name: str) -> None:
    found = yaml.safe_load((TRAINING / name / "metadata.yaml").read_text())
    assert [field for field in found if field not in OPTIONAL] == REQUIRED
    assert found["name"] == name
    assert found["stability"] in ("experimental", "alpha", "beta", "stable")
    assert isinstance(found["lastVerified"], datetime)
    needed = found["dependencies"]
    assert set(needed) == {"kubeflow", "external_services"}
    assert "Pipelines" in [each["name"] for each in needed["kubeflow"]]
    for each in (*needed["kubeflow"], *needed["external_services"]):
        assert SEMANTIC.fullmatch(each["version"]), each
    assert yaml.safe_load((TRAINING / name / "OWNERS").read_text())["approvers"]


@pytest.mark.parametrize("name", NAMES)
def test_its_page_is_generated_from_its_docstring_and_metadata(name: str) -> None:
    page = (TRAINING / name / "README.md").read_text(encoding="utf-8")
    assert page == _tool().page(TRAINING / name), "run `make docs`"


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_its_table_is_one_line(name: str) -> None:
    """Upstream's generator copies line breaks of a docstring into the row, and shows an empty text as two quotes."""
    lines = (TRAINING / name / "README.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| Parameter | Type | Default | Description |")
    end = lines.index("", start)
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines[start + 2 : end])
    assert not any("| `` |" in line for line in lines[start:end])


@pytest.mark.parametrize("name", NAMES)
def test_the_example_on_its_page_compiles(name: str, tmp_path: Path) -> None:
    text = (TRAINING / name / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "pipeline.py").write_text(text)
    program = str(Path(sys.executable).parent / "kfp")
    command = [program, "dsl", "compile", "--py", "pipeline.py", "--output", "pipeline.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pipeline.yaml").exists()


@pytest.mark.parametrize("name", NAMES)
def test_its_module_imports_only_kfp_and_the_standard_library(name: str) -> None:
    tree = ast.parse((TRAINING / name / "component.py").read_text())
    imported = {
        module.split(".")[0]
        for each in tree.body
        if isinstance(each, (ast.Import, ast.ImportFrom))
        for module in ([alias.name for alias in each.names] if isinstance(each, ast.Import) else [each.module or ""])
    }
    assert imported - sys.stdlib_module_names == {"kfp"}


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_its_folder_compiles_to_the_same_pipeline_without_stepset(name: str, tmp_path: Path) -> None:
    shutil.copytree(TRAINING / name, tmp_path / "components/training" / name)
    command = [sys.executable, "-W", "ignore", "-c", COMPILE, name, str(tmp_path / "copy.yaml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _compile(name, tmp_path / "own.yaml")
    assert yaml.safe_load((tmp_path / "copy.yaml").read_text()) == yaml.safe_load((tmp_path / "own.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("named", ["", "registry.example/python:7"])
def test_its_image_has_this_version_unless_the_variable_names_another(name: str, named: str) -> None:
    program = f"from stepset_kfp.training.{name}.component import IMAGE; print(IMAGE)"
    environment = {**os.environ, "STEPSET_KFP_IMAGE": named}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (named or f"stepset/kfp-python:{version('stepset')}")


def _compile(name: str, path: Path) -> None:
    from importlib import import_module

    from kfp import compiler

    compiler.Compiler().compile(getattr(import_module(f"stepset_kfp.training.{name}.component"), name), str(path))


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kfp_readmes", ROOT / "tools" / "kfp_readmes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
