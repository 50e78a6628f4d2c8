"""For all tests: marks by folder and fixture, default signal handling, and the cluster's state in failure reports."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import violations

_AGENT = Path(__file__).parent / "agent"

# The same examples are drawn in each run, so that a change fails because of what it changes. STEPSET_EXAMPLES draws new
# ones. Tests do not assert speed: other processes may delay the drawing of an input, and the input's test.
settings.register_profile(
    "stepset",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("STEPSET_EXAMPLES", "100")),
    derandomize="STEPSET_EXAMPLES" not in os.environ,
)
settings.load_profile("stepset")

# Imported objects are not garbage, and garbage collection takes a fifth of the time of importing Airflow.
gc.disable()


def pytest_collection_finish() -> None:
    """Excludes all imported objects from garbage collection: each full collection would traverse them."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Records violations. Makes processes that tests start receive signals, even if the test process ignores them.

    A shell starts background processes with SIGINT and SIGQUIT ignored, and nohup ignores SIGHUP; children inherit
    ignored signals. A program that is executed does not inherit handlers, so a handler that does nothing restores the
    default in children.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    config.pluginmanager.register(violations)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _AGENT in item.path.parents:
            item.add_marker(pytest.mark.local)
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the state of the cluster to the report of a test that failed on a cluster."""
    report = yield
    given = getattr(item, "funcargs", {})
    if report.failed and call.when != "teardown" and "cluster" in given:
        from tests.cluster.evidence import evidence

        # The JUnit report contains the sections of the error, but not those of `report`.
        add = getattr(report.longrepr, "addsection", None) or (lambda *section: report.sections.append(section))
        add("the cluster", evidence(given))
    return report
