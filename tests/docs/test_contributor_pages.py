"""Links, paths and file names in the pages for contributors exist; the walk of docs/architecture.md follows imports."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))

_SKIPPED = {".venvs", ".git", ".hypothesis", ".pytest_cache", "node_modules"}
PAGES = sorted(path for path in ROOT.rglob("*.md") if not _SKIPPED.intersection(path.relative_to(ROOT).parts))

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
_FILE = re.compile(r"[\w/-]+\.py\b")
_ROW = re.compile(r"^\| (\d+) \| \[[^\]]+\]\(([^)]+)\) \| ([^|]+) \|", re.MULTILINE)


class Step(NamedTuple):
    """A row of the walk: the file that it links, and the names to look for in it."""

    number: int
    path: Path
    names: tuple[str, ...]


def _text(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _broken_links(page: Path) -> list[str]:
    broken = []
    for link in _LINK.findall(_text(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = unquote(link).partition("#")
        path = (page.parent / target) if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path)):
            broken.append(link)
    return broken


def _missing_paths(page: Path) -> list[str]:
    """Paths in code spans that no file matches; NAME stands for any part of a file's name."""
    named = [span for span in _CODE.findall(_text(page)) if "/" in span and _PATH.fullmatch(span)]
    assert named
    return [span for span in named if not span.startswith(".venvs/") and not any(ROOT.glob(span.replace("NAME", "*")))]


def _missing_files(page: Path) -> list[str]:
    """Python files that a page names, in diagrams too, with the last parts of their paths, and that do not exist."""
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    return sorted(name for name in named if not any(path.endswith(f"/{name}") for path in _python_files()))


@cache
def _python_files() -> tuple[str, ...]:
    """The absolute paths of the repository's Python files."""
    folders = ("src", "providers", "components", "tests", "tools", "benchmarks", "examples", "dags")
    return tuple(path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _walks() -> list[list[Step]]:
    """The paths of a job, of a pod's event, and of a rank's line. Each path begins with the number 1."""
    walks: list[list[Step]] = []
    for number, link, names in _ROW.findall(ARCHITECTURE.read_text(encoding="utf-8")):
        if number == "1":
            walks.append([])
        walks[-1].append(Step(int(number), (ARCHITECTURE.parent / link).resolve(), tuple(_CODE.findall(names))))
    return walks


def _module(path: Path) -> str:
    """The name by which a file is imported."""
    for root in ("src", "providers", "components"):
        if path.is_relative_to(ROOT / root):
            return ".".join(path.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__")
    raise AssertionError(f"{path} is in no package")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> set[str]:
    """The modules that a file imports, at any level."""
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
            [package] = re.findall(r"^f'([\w.]+)\.{kind}'$", ast.unparse(node.args[0]))
            found |= {f"{package}.{each.stem}" for each in (ROOT / "src" / package.replace(".", "/")).glob("*.py")}
    return found


def _defined(path: Path) -> set[str]:
    """Names of functions, classes, and variables of modules and classes that a file defines."""
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def _commands(goal: str) -> str:
    """The commands that make would run for a goal."""
    # Variables of a make that runs these tests would add lines to the output.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "-n", "-o", "setup", goal]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    assert _broken_links(page) == []


@pytest.mark.parametrize("page", [CONTRIBUTING, ARCHITECTURE], ids=lambda page: page.name)
def test_every_path_in_the_text_exists(page: Path) -> None:
    assert _missing_paths(page) == []


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.name)
def test_every_python_file_that_a_design_page_names_exists(page: Path) -> None:
    assert _missing_files(page) == []


def test_a_wrong_link_a_wrong_path_and_a_wrong_file_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](#a-title) [b](#b) [c](c.md) [d](https://example.org/d) `src/none.py` `src/stepset`")
    assert _broken_links(page) == ["#b", "c.md"]
    assert _missing_paths(page) == ["src/none.py"]
    page.write_text("```\nspec/job.py ──▶ jobs.py\n```\n`spec/none.py`")
    assert _missing_files(page) == ["spec/none.py"]


def test_the_diagram_of_the_packages_is_complete() -> None:
    diagram = ARCHITECTURE.read_text(encoding="utf-8").split("```")[1]
    package = ROOT / "src" / "stepset"
    modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {f"stepset.{name}" for name in modules - {"__init__", "__main__"}} - set(
        re.findall(r"stepset\.\w+", diagram)
    ) == set()


class TestWalks:
    def test_they_are_numbered(self) -> None:
        walks = _walks()
        assert len(walks) == 3
        for walk in walks:
            assert [step.number for step in walk] == list(range(1, len(walk) + 1))

    def test_the_first_starts_at_the_operator_and_ends_in_the_agent(self) -> None:
        walk = _walks()[0]
        assert "class DistributedTrainOperator" in walk[0].path.read_text(encoding="utf-8")
        assert _module(walk[-1].path).startswith("stepset.agent.")

    @pytest.mark.parametrize("step", [step for walk in _walks() for step in walk], ids=lambda step: step.path.stem)
    def test_the_file_defines_the_names_to_look_for(self, step: Step) -> None:
        assert step.names
        assert set(step.names) - _defined(step.path) == set()

    def test_each_file_of_the_first_is_imported_by_an_earlier_one(self) -> None:
        start = ROOT / "src" / "stepset" / "agent" / "built" / "start.py"
        assert "from stepset.agent.command_line import main" in start.read_text(encoding="utf-8")
        walk = _walks()[0]
        known = {_module(walk[0].path), "stepset.agent.command_line"}
        for step in walk:
            assert _module(step.path) in known, f"step {step.number}: no earlier file imports {step.path.name}"
            known |= _imports(step.path)


def test_pre_commit_runs_the_checks_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    [repository] = config["repos"]
    assert repository["repo"] == "local"  # no downloads
    [hook] = repository["hooks"]
    assert hook["entry"].split() == ["make", "--no-print-directory", "checks"]
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    assert _commands("lint").replace("make --no-print-directory checks\n", "") == _commands("checks")
