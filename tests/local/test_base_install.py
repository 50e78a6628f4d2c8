"""A local run needs only the packages that `pip install stepset` installs, without an extra."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.conftest import STEPSET

ROOT = Path(__file__).parents[2]
SITE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

MODULES = frozenset(%r)
sys.meta_path.insert(0, Missing())
"""


def installed_without_extras() -> set[str]:
    """The packages that stepset requires, directly and indirectly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, open_ = set[str](), [Requirement(each) for each in project["dependencies"]]
    while open_:
        name = canonicalize_name(open_.pop().name)
        if name not in found:
            found.add(name)
            needed = [Requirement(each) for each in requires(name) or ()]
            open_ += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def missing_modules() -> list[str]:
    """The modules of all other packages of this environment."""
    there = {"stepset", *installed_without_extras()}
    packages = packages_distributions().items()
    return sorted(module for module, owners in packages if there.isdisjoint(map(canonicalize_name, owners)))


@pytest.mark.local
def test_a_run_is_started_listed_and_read_with_the_required_packages_only(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE % (missing_modules(),))
    (tmp_path / "train.py").write_text("print('trained')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "STEPSET_HOME": str(tmp_path / "home")}

    def stepset(*words: str) -> str:
        done = subprocess.run([STEPSET, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "kubernetes" in missing_modules()
    stepset("run", "--backend", "local", "--framework", "plain", "--name", "small", "train.py")
    assert [each["phase"] for each in json.loads(stepset("list", "-o", "json"))["items"]] == ["Succeeded"]
    assert "Succeeded" in stepset("status", "small")
    assert "trained" in stepset("logs", "small")
