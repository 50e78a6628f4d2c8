"""Fixtures of the page's tests: an API server, a browser, and a training that runs during the tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.harness import DAGS
from tests.airflow.page.server import Server, give_to_red_team, running_server
from tests.airflow.page.stored import StoredRuns, served, stored_runs
from tests.airflow.page.training import Training, started_training
from tests.airflow.workers import StartWorker
from tests.browser import browser
from tests.waiting import STARTS_WITHIN, until

__all__ = ["browser"]

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


@contextmanager
def browser_page(browser: Browser, cookies: Sequence[Any] = (), **options: Any) -> Iterator[Page]:
    """A page in a browser context of its own, with options of `new_context`; an error in its console fails the test."""
    # The processor would draw animations sixty times a second.
    usual = {"color_scheme": "light", "reduced_motion": "reduce", "timezone_id": "UTC"}
    context = browser.new_context(**{**usual, "viewport": {"width": 1280, "height": 900}, **options})
    context.add_cookies(cookies)
    context.set_default_timeout(TIMEOUT)
    opened, errors = context.new_page(), []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert [error for error in errors if "(Not Found)" not in error] == []


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A browser page of a user who may read the DAG."""
    with browser_page(browser, cookies_of("vera", server)) as opened:
        yield opened


def cookies_of(user: str, server: Server) -> list[Any]:
    """The cookies of a user who is logged in."""
    return [{"name": "_token", "value": server.token(user), "url": server.address}]


@pytest.fixture(scope="module")
def stored(airflow_db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredRuns]:
    """Stored documents of runs, and the application that reads them."""
    with stored_runs(f"sqlite:///{tmp_path_factory.mktemp('stored') / 'runs.db'}") as runs:
        yield runs


@pytest.fixture(scope="module")
def site(stored: StoredRuns) -> Iterator[str]:
    """The URL of the page that shows the stored runs."""
    with served(stored) as url:
        yield url
