"""A pytest plugin that counts the outcomes of tests and records the failed tests.

For each failed test, the plugin records the error and whether the test may be retried. It writes the results as JSON to
the file whose path is in STEPSET_OUTCOMES. A test may be retried only if it has the mark `retry`, which states the
reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

VARIABLE = "STEPSET_OUTCOMES"
_RETRY = "retry"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark `retry` and, if STEPSET_OUTCOMES is set, the counters.

    The worker processes of pytest-xdist have no counters.
    """
    config.addinivalue_line("markers", "retry(reason): may fail for this reason, and is then run once more")
    if VARIABLE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Outcomes(Path(os.environ[VARIABLE])))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds a text to the report of a failed test: the reason why the test may be retried."""
    report = yield
    mark = item.get_closest_marker(_RETRY)
    if report.failed and mark is not None:
        report.user_properties.append((_RETRY, mark.kwargs["reason"]))
    return report


class _Outcomes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: set[str] = set()
        self._skipped: set[str] = set()
        self._failed: dict[str, dict[str, str | None]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            reason = dict(report.user_properties).get(_RETRY)
            self._failed[report.nodeid] = {"reason": reason, "error": _error(report)}
        elif report.skipped:
            self._skipped.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # If one file cannot be collected and pytest uses worker processes, pytest may run the other files. The exit
        # code of pytest then means that tests have failed. Therefore such a file is recorded as a failed test.
        if report.failed:
            self._failed[report.nodeid] = {"reason": None, "error": "cannot be collected"}

    def pytest_sessionfinish(self) -> None:
        counts = {"passed": len(self._passed - set(self._failed)), "skipped": len(self._skipped)}
        self._path.write_text(json.dumps({**counts, "failed": self._failed}), encoding="utf-8")


def _error(report: pytest.TestReport) -> str:
    """Returns the first line of the error of a failed test."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return lines[0] if lines else ""
