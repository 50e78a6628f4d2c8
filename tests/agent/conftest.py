"""A pod to run agents in; some tests run with an old Python too, because images bring their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.agent.pods import Both, Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """A pod whose agent runs with the Python of the tests."""
    return Pod(tmp_path)


@pytest.fixture(params=["ranks", "launched"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    """Ranks the agent starts itself, and ranks a launcher starts; the latter with an old Python, if there is one."""
    pod = Pod(tmp_path, (request.param == "launched" and _python38()) or sys.executable)
    return Both(pod, pod.start_launched if request.param == "launched" else pod.start_ranks)


@pytest.fixture(params=["this", "3.8"])
def any_pod(request: pytest.FixtureRequest, tmp_path: Path) -> Pod:
    """A pod whose agent runs with each Python that has to do."""
    python = sys.executable if request.param == "this" else _python38()
    if python is None:
        pytest.skip("no python3.8 on PATH")
    return Pod(tmp_path, python)


@cache
def _python38() -> str | None:
    found = shutil.which("python3.8")
    asked = found and subprocess.run([found, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
    return asked.stdout.strip() if asked and not asked.returncode else None
