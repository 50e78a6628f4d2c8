"""A pod that runs agents; some tests also use an old Python, because images contain their own."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from tools.pythons import FOR_THE_AGENT, interpreters

from tests.agent.pods import Both, Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """A pod whose agent runs with the Python of the tests."""
    return Pod(tmp_path)


@pytest.fixture(params=["ranks", "launched"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    """Ranks that the agent starts, and ranks that a launcher starts; the latter with an old Python, if available."""
    pod = Pod(tmp_path, (request.param == "launched" and _old_python()) or sys.executable)
    return Both(pod, pod.start_launched if request.param == "launched" else pod.start_ranks)


@pytest.fixture(params=["this", "oldest"])
def any_pod(request: pytest.FixtureRequest, tmp_path: Path) -> Pod:
    """A pod whose agent runs with the Python of the tests, and with the oldest one that the agent supports."""
    python = sys.executable if request.param == "this" else _old_python()
    if python is None:
        minimum, this = (".".join(map(str, version)) for version in (FOR_THE_AGENT, sys.version_info[:2]))
        pytest.skip(f"no Python from {minimum} to one older than {this} is installed (tools/pythons.py)")
    return Pod(tmp_path, python)


@cache
def _old_python() -> str | None:
    """Returns the oldest Python of this machine that the agent supports, if it is older than that of the tests."""
    found = interpreters(FOR_THE_AGENT)
    return str(found[0].path) if found and found[0].version[:2] < sys.version_info[:2] else None
