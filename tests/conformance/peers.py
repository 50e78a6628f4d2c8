"""Rows of data/peers.json, and how a test uses one. Used by the test_peers_* modules.

Rows record what other launchers, and the programs they launch, do for a given input: from their own tests, from their
source, or executed.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.pods import Planned, Row, load_rows

ROWS, LEFT_OUT = load_rows("peers.json")
TESTED: set[str] = set()


def row(name: str) -> Row:
    """Returns a row of the data."""
    return ROWS[name]


def rows(*names: str) -> pytest.MarkDecorator:
    """Parametrizes a test with these rows, and records them as tested."""
    TESTED.update(names)
    return pytest.mark.parametrize("vector", [pytest.param(row(name), id=name) for name in names])


def planned(framework: Any = "torch", **job: Any) -> Planned:
    return Planned(**{"name": "job", "framework": framework, "script": "train.py", **job})
