"""The page of one run in a real browser: each message once, times in the browser's time zone."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.present.sentences import resume_sentence
from stepset_airflow.page.history import RunHistory
from tests.airflow.page.conftest import browser_page
from tests.airflow.page.stored import StoredRuns

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]

NUMBERS = itertools.count()
CREATED = 1_767_268_800.0  # 2026-01-01 12:00:00 UTC
RUN = RunStatus("train-1", "train", "kubernetes", created=CREATED, world_size=2)
NO_ROOM = Failure(FailureKind.UNSCHEDULABLE, "no room for pod train-1-node-0", "Request less.")
FAILURE = Failure(
    FailureKind.USER_ERROR,
    "rank 1 exited with code 1: ValueError: bad batch",
    "Fix the training code.",
    rank=1,
    error="ValueError: bad batch",
    tail=("Traceback", "a line"),
)
WAITING = RUN.with_(reason="Unschedulable", trouble=NO_ROOM)
NOTE = resume_sentence("step-118", CREATED - 5 * 86_400, CREATED)
RUNNING = RUN.with_(phase=Phase.RUNNING, started=CREATED + 20, notes=(NOTE, "8 processes share 2 cores"))
FAILED = RUNNING.with_(phase=Phase.FAILED, finished=CREATED + 60, failure=FAILURE)


def shown(page: Page, site: str, stored: StoredRuns, *statuses: RunStatus, state: str = "deferred") -> Page:
    """Stores a run with this history as a task, and opens its page."""
    history = RunHistory({"namespace": "ml", "target": "jobset", "try_number": 1})
    for number, status in enumerate(statuses):
        history.record(status, CREATED + 10 * number)
    task = f"task{next(NUMBERS)}"
    stored.add("dag", task, json.loads(json.dumps(history.document(CREATED + 100))), state=state)
    page.goto(f"{site}?{urlencode({'dag_id': 'dag', 'run_id': 'run', 'task_id': task, 'map_index': -1})}")
    page.wait_for_selector("main:not([aria-busy])")
    return page


def count(page: Page, text: str) -> int:
    return page.inner_text("main").count(text)


def test_a_problem_is_shown_once_while_it_lasts_and_afterwards(browser: Browser, site: str, stored: StoredRuns) -> None:
    with browser_page(browser) as page:
        shown(page, site, stored, WAITING)
        assert count(page, NO_ROOM.message) == 1
        assert NO_ROOM.message in page.locator(".diagnosis").inner_text()
        assert "Since 1/1/2026 12:00:00 PM." in page.locator(".diagnosis").inner_text().replace("\u202f", " ")
        shown(page, site, stored, WAITING, RUNNING)
        assert count(page, NO_ROOM.message) == 1
        assert NO_ROOM.message in page.locator(".events").inner_text()


def test_a_problem_of_a_task_that_is_over_is_shown_once(browser: Browser, site: str, stored: StoredRuns) -> None:
    with browser_page(browser) as page:
        shown(page, site, stored, WAITING, state="failed")
        assert "the state shown here may be outdated" in page.locator(".diagnosis").inner_text()
        assert count(page, NO_ROOM.message) == 1


def test_a_failure_and_the_phases_are_shown_once(browser: Browser, site: str, stored: StoredRuns) -> None:
    with browser_page(browser) as page:
        shown(page, site, stored, WAITING, RUNNING, FAILED, state="failed")
        for text in ("ValueError: bad batch", "Pending (Unschedulable)", "Fix the training code.", "Traceback"):
            assert count(page, text) == 1, text
        events = page.locator(".events li").all_inner_texts()
        assert [re.sub(r"^.*? [AP]M ", "", event.replace("\u202f", " ")) for event in events] == [
            "trouble: Unschedulable: no room for pod train-1-node-0. Request less.",
            "resuming from step-118, written 12/27/2025 12:00:00 PM",
            "8 processes share 2 cores",
        ]


@pytest.mark.parametrize(
    ("zone", "started", "written"),
    [
        ("Asia/Tokyo", "1/1/2026 09:00:00 PM", "12/27/2025 09:00:00 PM"),
        ("America/New_York", "1/1/2026 07:00:00 AM", "12/27/2025 07:00:00 AM"),
    ],
)
def test_every_time_is_in_the_browsers_time_zone(
    browser: Browser, site: str, stored: StoredRuns, zone: str, started: str, written: str
) -> None:
    with browser_page(browser, timezone_id=zone, locale="en-US") as page:
        shown(page, site, stored, WAITING, RUNNING, FAILED, state="failed")
        text = page.inner_text("main").replace("\u202f", " ")
        assert f"since {started}" in text
        assert f"resuming from step-118, written {written}" in text
        assert f"Pending (Unschedulable) 20 s from {started}" in re.sub(r"\s+", " ", text)
        assert f"Time zone: {zone}" in text
        assert "12:00:00 PM" not in text
