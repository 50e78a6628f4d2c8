"""Fixtures of the tests of single modules."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepset.agent.config import Config
from stepset.agent.loop import Loop


@pytest.fixture
def config() -> Callable[..., Config]:
    """Creates a config from optional keys."""

    def make(**more: Any) -> Config:
        return Config({"version": 1, "group": "node", "dir": "/pod", **more})

    return make


@pytest.fixture
def loop() -> Iterator[Loop]:
    """An event loop that handles SIGUSR1; restores the signal handlers at the end."""
    handler = signal.getsignal(signal.SIGUSR1)
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield Loop([signal.SIGUSR1])
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR1, handler)
