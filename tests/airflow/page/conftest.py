"""Fixtures of the page's tests: an API server, a browser, and a training that runs during the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.airflow.harness import DAGS
from tests.airflow.page.server import Server, give_to_red_team, running_server
from tests.airflow.page.training import Training, started_training
from tests.airflow.workers import StartWorker
from tests.waiting import STARTS_WITHIN, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def starting_server(airflow_db: None) -> Iterator[Server]:
    """Airflow's API server, which may not answer yet."""
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
def server(starting_server: Server) -> Server:
    """Airflow's API server."""
    starting_server.wait()
    return starting_server


TIMEOUT = 60_000.0
"""Milliseconds after which an expected element counts as missing, on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser.

    Playwright's event loop runs in this thread as long as the browser does, and asyncio allows no other, so the browser
    ends with the module that uses it.
    """
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail("chromium is not installed; run `make system` as root")
        pytest.skip("chromium is not installed (`make system` as root installs it)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def training(
    starting_server: Server, start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Training]:
    """A training of four ranks on two nodes that the page shows and that runs until a test signals its end.

    All tests share it, because Airflow takes long to start.
    """
    signals, folder = tmp_path_factory.mktemp("signals"), DAGS / "digits_page"
    with started_training(start_worker, folder, signals) as started:
        assert until(lambda: started.over or bool(started.run_id), STARTS_WITHIN)
        give_to_red_team()
        starting_server.wait()
        shown = until(lambda: started.over or started.phase(starting_server) == "Running", STARTS_WITHIN)
        assert shown, "the page does not show the training"
        assert not started.over, started.process.output[-3000:]
        yield started


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A browser page of a user who may read the DAG; an error in its console fails the test."""
    # The processor would draw animations sixty times a second.
    context = browser.new_context(
        color_scheme="light",
        reduced_motion="reduce",
        viewport={"width": 1280, "height": 900},
        timezone_id="UTC",
    )
    context.add_cookies([{"name": "_token", "value": server.token("vera"), "url": server.address}])
    context.set_default_timeout(TIMEOUT)
    opened, errors = context.new_page(), []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert [error for error in errors if "(Not Found)" not in error] == []
