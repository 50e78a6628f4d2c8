"""Which group a test belongs to, where its file does not say so itself."""

from __future__ import annotations

from pathlib import Path

import pytest

_AGENT = Path(__file__).parent / "agent"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _AGENT in item.path.parents:
            item.add_marker(pytest.mark.local)
