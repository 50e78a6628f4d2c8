"""The built file writes a compiled copy of itself, from which ranks start."""

from __future__ import annotations

import importlib.util
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepset.agent import BUILT_FILE
from stepset.agent.bundle import Bundle

SOURCES = {"stepset.agent.alpha": "\nVALUE = 1\n", "stepset.agent.beta": "VALUE = 2\n"}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An agent's file in a writable directory."""
    path = tmp_path / "lib" / "agent.py"
    path.parent.mkdir()
    path.write_bytes(BUILT_FILE.read_bytes())
    return path


def bundle(file: Path) -> Bundle:
    return Bundle(str(file), lambda: SOURCES, {})


def usage(path: str) -> str:
    return subprocess.run([sys.executable, "-I", "-S", path], capture_output=True, text=True, check=False).stderr


def test_the_importer_finds_only_its_own_modules() -> None:
    own = bundle(Path("agent.py"))
    assert own.find_spec("stepset.agent.alpha") is not None
    package = own.find_spec("stepset.agent")
    assert package is not None and package.submodule_search_locations == []
    assert own.find_spec("stepset.plan") is None
    assert own.find_spec("json") is None


def test_modules_are_named_as_in_the_package() -> None:
    code = bundle(Path("agent.py")).compile("stepset.agent.alpha")
    assert code.co_filename == "stepset/agent/alpha.py"


def test_compiled_modules_run_without_their_sources() -> None:
    codes = {"stepset.agent.alpha": marshal.dumps(compile("VALUE = 3", "a", "exec"))}

    def read_sources() -> dict[str, str]:
        raise AssertionError("sources were read")

    own = Bundle("agent.pyc", read_sources, codes)
    spec = own.find_spec("stepset.agent.alpha")
    assert spec is not None
    assert importlib.util.module_from_spec(spec)
    module = importlib.util.module_from_spec(spec)
    own.exec_module(module)
    assert module.VALUE == 3


def test_the_copy_is_beside_the_file_and_written_once(file: Path, tmp_path: Path) -> None:
    place = bundle(file).compiled(str(tmp_path))
    assert Path(place).parent == file.parent / "__pycache__"
    assert place != importlib.util.cache_from_source(str(file)), "Python's own file has another content"
    written = Path(place).stat()
    assert bundle(file).compiled(str(tmp_path)) == place
    assert Path(place).stat().st_ino == written.st_ino


@pytest.mark.parametrize("change", ["newer", "larger"])
def test_a_copy_of_another_file_is_replaced(file: Path, tmp_path: Path, change: str) -> None:
    first = Path(bundle(file).compiled(str(tmp_path))).stat().st_ino
    if change == "newer":
        os.utime(file, (1, 1))
    else:
        file.write_text(file.read_text() + "\n")
    assert Path(bundle(file).compiled(str(tmp_path))).stat().st_ino != first


def test_without_a_writable_cache_the_copy_is_in_the_agents_directory(file: Path, tmp_path: Path) -> None:
    (file.parent / "__pycache__").write_text("not a directory")
    assert bundle(file).compiled(str(tmp_path)) == str(tmp_path / "agent.pyc")


def test_no_copy_is_written_if_the_user_disables_the_cache(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert bundle(file).compiled(str(tmp_path)) == str(tmp_path / "agent.pyc")


def test_without_a_writable_directory_the_file_itself_is_used(file: Path, tmp_path: Path) -> None:
    (file.parent / "__pycache__").write_text("not a directory")
    assert bundle(file).compiled("/proc/nothing") == str(file)


def test_the_copy_of_a_copy_is_itself(tmp_path: Path) -> None:
    assert bundle(tmp_path / "agent.pyc").compiled(str(tmp_path)).endswith("agent.pyc")


def test_the_shipped_file_and_its_copy_run(file: Path, tmp_path: Path) -> None:
    assert usage(str(file)).startswith("stepset agent: no mode\nusage: agent.py run CONFIG.json")
    config = f'{{"version": 1, "group": "node", "dir": "{tmp_path}", "launcher": ["/bin/echo"], "program": ["x"]}}'
    (tmp_path / "config.json").write_text(config)
    words = [sys.executable, "-I", "-S", str(file), "run", str(tmp_path / "config.json"), "--", "x"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (copy,) = (word for word in printed.split() if word.endswith(".pyc"))
    assert usage(copy) == usage(str(file))
