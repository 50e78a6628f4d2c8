"""Which group a test belongs to, where its file does not say so itself; signals as a terminal's programs have them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

_AGENT = Path(__file__).parent / "agent"


def pytest_configure() -> None:
    """What the tests start hears of signals, even where the tests themselves were started to ignore them.

    A shell lets what it starts in the background ignore SIGINT and SIGQUIT, and nohup SIGHUP; children inherit that. A
    handler, in contrast, is not inherited by another program: this one hears and does nothing.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _AGENT in item.path.parents:
            item.add_marker(pytest.mark.local)
