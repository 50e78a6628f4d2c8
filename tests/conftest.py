"""For all tests: which group one belongs to, signals as a terminal's programs have them, what a cluster has to say."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

_AGENT = Path(__file__).parent / "agent"

# Nothing that is imported is garbage: collecting it is a fifth of the time that importing Airflow takes.
gc.disable()


def pytest_collection_finish() -> None:
    """What has been imported is never looked at again: each full collection would go through all of it."""
    gc.collect()
    gc.freeze()
    gc.enable()


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed on a cluster shows what is there."""
    report = yield
    given = getattr(item, "funcargs", {})
    if report.failed and call.when == "call" and "cluster" in given:
        from tests.cluster.evidence import evidence

        report.sections.append(("the cluster", evidence(given)))
    return report
