"""Agents of local runs start from the compiled copy, as long as it is that of the current file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepset.agent import BUILT_FILE
from stepset.agent.bundle import Bundle
from stepset.backends.local.agent_file import agent_file


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built file in a directory of its own."""
    path = tmp_path / "agent.py"
    path.write_bytes(BUILT_FILE.read_bytes())
    return path


def compile_beside(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the compiled copy, as an agent does, with the file's own modules."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    names: dict[str, object] = {"__name__": "agent"}
    exec(built.read_text(encoding="utf-8"), names)
    read = names["read_sources"]
    assert callable(read)
    return Path(Bundle(str(built), read, {}).compiled("/nowhere"))


def test_without_a_copy_the_file_itself_is_used(built: Path) -> None:
    assert agent_file(built) == built


def test_the_copy_that_an_agent_wrote_is_used_and_starts(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = compile_beside(built, monkeypatch)
    assert agent_file(built) == copy != built
    started = subprocess.run([sys.executable, "-I", "-S", copy], capture_output=True, text=True, check=False)
    assert "stepset agent: no mode" in started.stderr


def test_a_copy_of_an_earlier_file_is_not_used(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_beside(built, monkeypatch)
    os.utime(built, (1, 1))
    assert agent_file(built) == built
