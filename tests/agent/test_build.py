"""The file that runs in pods is built from the modules of the package, and its tracebacks name them."""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tokenize
import zlib
from pathlib import Path

import pytest
from tools import build_agent
from tools.build_agent import BUILT, PACKAGE, build, is_current, packed, read_modules, strip

from tests.agent.pods import Pod

ROOT = Path(__file__).parents[2]
MODULES = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "built"]
TEXT = re.compile(r'(?<=TEXT = ")[^"]+')


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that the build reads and writes."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "stepset" / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tools").mkdir()
    shutil.copy(build_agent.__file__, tmp_path / "tools")
    return tmp_path


def run_tool(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tool = checkout / "tools" / "build_agent.py"
    return subprocess.run([sys.executable, "-I", tool, *options], capture_output=True, text=True, check=False)


def test_the_shipped_file_is_the_build_result(checkout: Path) -> None:
    assert is_current(BUILT.read_text(encoding="utf-8")), "run `make agent`"
    assert run_tool(checkout, "--check").returncode == 0


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("rank.py", "DRAIN if ended_at", "0.0 if ended_at"),
        ("errors.py", "EXIT_PEERS = 70", "EXIT_PEERS = 69"),
        ("built/start.py", "SIG_BLOCK", "SIG_UNBLOCK"),
        ("lines.py", "import time\n", "import time\n\n"),
        ("built/agent.py", 'TEXT = "', 'TEXT = "('),
        ("built/agent.py", "SIG_BLOCK", "SIG_UNBLOCK"),
    ],
)
def test_the_check_fails_after_a_change_until_the_file_is_built(checkout: Path, file: str, old: str, new: str) -> None:
    changed = checkout / "src" / "stepset" / "agent" / file
    text = changed.read_text()
    assert old in text
    changed.write_text(text.replace(old, new, 1))
    failed = run_tool(checkout, "--check")
    assert failed.returncode == 1
    assert failed.stderr == "src/stepset/agent/built/agent.py is not built from src/stepset/agent: run `make agent`\n"
    assert run_tool(checkout).returncode == 0
    assert run_tool(checkout, "--check").returncode == 0


def test_make_lint_runs_the_check() -> None:
    shown = subprocess.run(["make", "--dry-run", "checks"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tools/build_agent.py --check" in shown.stdout


def test_the_result_of_another_compressor_is_current_too() -> None:
    built = BUILT.read_text(encoding="utf-8")
    (text,) = TEXT.findall(built)
    other = base64.b85encode(zlib.compress(packed().encode(), 1)).decode().replace("$", ",")
    assert other != text
    assert is_current(built.replace(text, other))


def test_the_file_has_no_dollar_sign_before_a_name() -> None:
    assert "$" not in BUILT.read_text(encoding="utf-8")


def test_a_file_that_is_read_decodes_as_python_does() -> None:
    built = runpy.run_path(str(BUILT))
    digits = built["TEXT"].replace(",", "$")
    assert zlib.decompress(base64.b85decode(digits)).decode() == packed()
    texts = read_modules().split("\0")
    assert built["read_sources"]() == dict(zip(texts[::2], texts[1::2], strict=True))


def test_docstrings_comments_and_annotations_are_not_shipped_and_lines_keep_their_numbers() -> None:
    for path in MODULES:
        stripped = strip(path)
        assert _definitions(stripped) == _definitions(path.read_text())
        tokens = tokenize.generate_tokens(io.StringIO(stripped).readline)
        assert all(token.type != tokenize.COMMENT for token in tokens)
        for node in ast.walk(ast.parse(stripped)):
            assert getattr(node, "annotation", None) is getattr(node, "returns", None) is None
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                assert ast.get_docstring(node) is None


def _definitions(source: str) -> list[tuple[str, int]]:
    nodes = ast.walk(ast.parse(source))
    return sorted((node.name, node.lineno) for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef))


def test_the_build_only_removes_comments_docstrings_annotations_and_imports_for_annotations(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text('''"""Doc."""
from __future__ import annotations
from a import B
from d import (
    D, E)
class C(Exception):
    """Doc
    of a class."""
def f(
    a: int,  # why
    *, b: str = "# no comment",
) -> B:
    """Doc."""
    found: list[int] = [a]
    text = """
    # no comment
    """
    return (f"{found} {a}", text,
        b, found[0 : 1], D(found=a))
  # a comment
X = 1
"""Doc of X."""
''')
    assert strip(module).split("\n") == [
        "0",
        "0",
        "0",
        "from d import (",
        "    D, E)",
        "class C(Exception):",
        "    0",
        "",
        "def f(",
        "    a,",
        '    *, b = "# no comment",',
        "):",
        "    0",
        "    found = [a]",
        '    text = """',
        "    # no comment",
        '    """',
        '    return (f"{found} {a}", text,',
        "        b, found[0 : 1], D(found=a))",
        "",
        "X = 1",
        "0",
        "",
    ]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("match x:\n    case 1: pass\n", "Pattern matching is only supported in Python 3.10"),
        ("x = (\n", "'(' was never closed"),
        ("x = 'é'\n", "'ascii' codec can't decode"),
    ],
)
def test_rejects_sources_that_cannot_be_built(tmp_path: Path, source: str, error: str) -> None:
    module = tmp_path / "m.py"
    module.write_text(source, encoding="utf-8")
    with pytest.raises((SyntaxError, UnicodeDecodeError), match=re.escape(error)):
        strip(module)


def test_the_modules_import_only_the_standard_library_and_each_other() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                for name in names:
                    assert name.startswith("stepset.agent.") or name.split(".")[0] in sys.stdlib_module_names, path


FAULTS = {
    "run": ("pod.py", "        config = self._config\n        if config.in_world and not self._node", "_start"),
    "rank": ("rank.py", "        self._pipe, writer = read_pipe(1 << 18)", "start"),
}


@pytest.mark.parametrize("mode", FAULTS)
def test_a_traceback_shows_the_line_of_the_module(any_pod: Pod, checkout: Path, mode: str) -> None:
    file, before, function = FAULTS[mode]
    module = checkout / "src" / "stepset" / "agent" / file
    text = module.read_text()
    line = text[: text.index(before)].count("\n") + 1
    module.write_text(text.replace(before, f"        1 / 0  # planted\n{before}"))
    agent = any_pod.directory / "agent.py"
    agent.write_text(build(module.parent))
    config = {"version": 1, "group": "node", "dir": str(any_pod.dir)}
    if mode == "rank":
        config = {**config, "launcher": any_pod.launcher("import os, sys\nos.execv(sys.argv[2], sys.argv[2:])", 1)}
    (any_pod.directory / "config.json").write_text(json.dumps(config))
    command = [any_pod.python, "-I", "-S", agent, "run", any_pod.directory / "config.json", "--", "true"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    printed = (ended.stdout if mode == "rank" else ended.stderr).replace("[node-0] ", "")
    assert f'  File "stepset/agent/{file}", line {line}, in {function}\n    1 / 0\n' in printed
    assert "\nZeroDivisionError: division by zero\n" in printed
    assert (any_pod.dir / "agent.pyc").exists() == (mode == "rank")
