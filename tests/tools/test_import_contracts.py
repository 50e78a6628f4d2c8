"""The import contracts of pyproject.toml fail on a planted import; no module avoids them by importing by name."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("src", "providers", "components")
FIRST = "from __future__ import annotations\n"
LAZY_FACADE = "src/stepset/__init__.py"
"""Imports public modules on first use; it is above all layers."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and of their contracts."""
    copy = tmp_path_factory.mktemp("checkout")
    for each in PACKAGES:
        shutil.copytree(ROOT / each, copy / each, ignore=lambda folder, names: _no_modules(Path(folder), names))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def _no_modules(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not (folder / name).is_dir()]


def lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(checkout / each) for each in PACKAGES)
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "planted", "contract"),
    [
        ("src/stepset/run_status.py", "from stepset.html import status", "Data flows one way"),
        ("src/stepset/watch/lines.py", "from stepset.watch.cluster import router", "No import cycles"),
        (
            "providers/stepset_airflow/run/termination.py",
            "from stepset_airflow.operators import distributed_train",
            "No import cycles",
        ),
        ("src/stepset/plan/env.py", "import subprocess", "Everything left of the backends"),
        ("src/stepset/agent/loop.py", "import yaml", "The agent imports nothing but itself"),
    ],
)
def test_a_planted_import_breaks_its_contract(checkout: Path, file: str, planted: str, contract: str) -> None:
    path = checkout / file
    before = path.read_text(encoding="utf-8")
    assert FIRST in before
    path.write_text(before.replace(FIRST, f"{FIRST}{planted}\n", 1), encoding="utf-8")
    try:
        done = lint(checkout)
    finally:
        path.write_text(before, encoding="utf-8")
    broken = [line for line in done.stdout.splitlines() if line.rstrip().endswith("BROKEN")]
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(line.startswith(contract) for line in broken), done.stdout


def test_the_copy_without_a_planted_import_keeps_all_contracts(checkout: Path) -> None:
    done = lint(checkout)
    assert done.returncode == 0, done.stdout + done.stderr


def imports_by_name(text: str) -> Iterator[str]:
    """Yields the modules of stepset that a text imports by a constant name, which the contracts do not see."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ) if name.startswith("stepset"):
                yield name


def test_no_module_imports_another_one_by_name() -> None:
    files = [path for each in PACKAGES for path in sorted((ROOT / each).rglob("*.py"))]
    assert len(files) > 300
    named = {path.relative_to(ROOT).as_posix(): list(imports_by_name(path.read_text("utf-8"))) for path in files}
    assert {file: names for file, names in named.items() if names} == {LAZY_FACADE: ["stepset.aio"]}


@pytest.mark.parametrize("call", ["import_module", "importlib.import_module", "__import__"])
def test_a_planted_import_by_name_is_found(call: str) -> None:
    assert list(imports_by_name(f"def f():\n    return {call}('stepset.html.status').x\n")) == ["stepset.html.status"]
