"""Fixtures of the tests of functions, scripts and notebooks: a separate home, and a check for remaining processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import browser
from tests.local.conftest import eventually_none, living

__all__ = ["browser"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of the test's runs, which child processes use, too; no process of a run may outlive the test."""
    path = tmp_path / "home"
    monkeypatch.setenv("STEPSET_HOME", str(path))
    yield path
    assert eventually_none(lambda: living(tmp_path)) == [], "processes outlived their run"
