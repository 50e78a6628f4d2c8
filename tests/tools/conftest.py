"""Tests of the release's tools need an environment of their own."""

from __future__ import annotations

import os

import pytest

from tests.tools.release import TOOLS


@pytest.fixture(scope="session")
def tools() -> None:
    """Skips the test if the environment is missing."""
    if not (TOOLS / "python").exists():
        reason = "the tools of a release are not installed: make setup-tools"
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)
