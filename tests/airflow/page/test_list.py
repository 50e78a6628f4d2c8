"""The list of 1,000 runs: filters and pages, as data and in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from stepset.run_status import Failure, FailureKind, Phase, Progress, RunStatus
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.run_selection import PAGE_SIZE
from tests.airflow.page.conftest import browser_page
from tests.airflow.page.stored import StoredRuns, running_postgres, stored_runs
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]

NOW = datetime.now(UTC)
RUNS = 1000
HOSTILE = "<img src=x onerror=alert(1)>%_"


def document(number: int, at: datetime) -> dict[str, Any]:
    """The document of the run with this number: every fifth failed, every seventh runs."""
    created = at.timestamp() - 600
    run = RunStatus(f"train-{number:04}", "train", "kubernetes", created=created, started=created + 5, world_size=8)
    history = RunHistory({"namespace": "ml", "target": "jobset", "try_number": 1})
    history.record(run.with_(phase=Phase.RUNNING, progress=Progress(number, 0.5, {"loss": 1.0})), created + 10)
    if number % 5 == 0:
        failure = Failure(FailureKind.USER_ERROR, "rank 1 exited with code 1: ValueError: bad batch", "Fix it.")
        history.record(run.with_(phase=Phase.FAILED, finished=created + 60, failure=failure), created + 61)
    elif number % 7:
        history.record(run.with_(phase=Phase.SUCCEEDED, finished=created + 500), created + 501)
    found: dict[str, Any] = json.loads(json.dumps(history.document(created + 600)))
    return found


def add_thousand(stored: StoredRuns) -> None:
    """Adds a thousand runs, the first one the newest, ten for each day."""
    documents = []
    for number in range(RUNS):
        at = NOW - timedelta(days=number // 10, minutes=number % 10 + 1)
        more = {"run_id": f"scheduled__{number}", "timestamp": at}
        documents.append(("dag" if number % 2 else "busy", f"task{number % 3}", document(number, at), more))
    stored.add_all(documents)


@pytest.fixture(scope="module", autouse=True)
def runs(stored: StoredRuns) -> None:
    """A thousand runs, and one with a number that is not JSON."""
    add_thousand(stored)
    infinite = {**document(0, NOW), "created": float("inf")}
    stored.add("dag", HOSTILE, infinite, run_id="unreadable", timestamp=NOW - timedelta(days=400))


@pytest.fixture
def client(stored: StoredRuns) -> Iterator[Any]:
    from fastapi.testclient import TestClient

    with TestClient(stored.application) as made:
        yield made


def got(client: Any, **wanted: Any) -> dict[str, Any]:
    answer = client.get("/api/runs", params=wanted)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def names(data: dict[str, Any]) -> list[str]:
    return [row["training"]["run"] for row in data["runs"] if row["training"]]


def test_the_pages_contain_every_run_once_the_newest_first(client: Any) -> None:
    first = got(client)
    assert (first["total"], first["page"], first["size"]) == (RUNS + 1, 1, PAGE_SIZE)
    pages = [got(client, page=page) for page in range(1, RUNS // PAGE_SIZE + 2)]
    assert [name for page in pages for name in names(page)] == [f"train-{number:04}" for number in range(RUNS)]
    assert len(pages[-1]["runs"]) == 1, "the unreadable document"
    assert got(client, page=999)["page"] == RUNS // PAGE_SIZE + 1, "a page that does not exist is the last one"


def test_filters_can_be_combined(client: Any) -> None:
    assert got(client, phase="Failed")["total"] == RUNS // 5
    assert got(client, phase="Running")["total"] == sum(1 for n in range(RUNS) if n % 7 == 0 and n % 5)
    assert got(client, days=1)["total"] == 10
    assert names(got(client, text="TRAIN-0123")) == ["train-0123"]
    assert got(client, text="busy")["total"] == RUNS // 2
    assert got(client, text="scheduled__99")["total"] == 11
    assert names(got(client, text="task0", phase="Failed", days=2)) == ["train-0000", "train-0015"]
    assert got(client, text="no such run") == {"runs": [], "total": 0, "page": 1, "size": PAGE_SIZE}


def test_special_characters_of_the_text_have_no_meaning(client: Any) -> None:
    assert got(client, text="%_")["total"] == 1
    assert got(client, text="'; --")["total"] == 0
    assert got(client, phase="nothing")["total"] == 0
    for wrong in ({"text": "a\x00"}, {"text": "x" * 201}, {"page": 0}, {"page": 10**9}, {"days": 0}, {"days": 10**6}):
        assert client.get("/api/runs", params=wrong).status_code == 422, wrong


QUERIES: list[dict[str, Any]] = [
    {"page": 3, "days": 30},
    {"phase": "Failed", "page": 2},
    {"text": "TRAIN-01"},
    {"text": "scheduled__99", "phase": "Running"},
    {"text": "%_\\'"},
]


def test_postgresql_gives_the_same_answers(client: Any) -> None:
    from fastapi.testclient import TestClient

    with running_postgres() as url, stored_runs(url) as runs:
        add_thousand(runs)
        with TestClient(runs.application) as other:
            for wanted in QUERIES:
                assert got(other, **wanted) == got(client, **wanted)
            runs.add("dag", "foreign", ["phase", "Failed"])
            assert got(other, phase="Failed")["total"] == RUNS // 5


def test_a_user_gets_only_pages_of_permitted_runs(client: Any, stored: StoredRuns) -> None:
    stored.user = "DAG busy"
    try:
        assert got(client)["total"] == RUNS // 2 + 1
        assert got(client, text="busy")["total"] == 0
    finally:
        stored.user = "all"


def count(page: Page) -> str:
    return page.locator(".count").inner_text()


def listed(page: Page) -> list[str]:
    return page.locator("table.list tbody a").all_inner_texts()


class TestBrowser:
    def test_a_user_turns_the_pages(self, browser: Browser, site: str) -> None:
        with browser_page(browser) as page:
            page.goto(site)
            page.locator("table.list tbody tr").nth(PAGE_SIZE - 1).wait_for()
            assert count(page) == "1–50 of 1,001"
            assert listed(page)[0] == "train-0000"
            page.get_by_role("button", name="Next").click()
            assert until(lambda: count(page) == "51–100 of 1,001")
            assert listed(page)[0] == "train-0050"
            assert page.url.endswith("?page=2")
            page.get_by_role("button", name="Previous").click()
            assert until(lambda: count(page) == "1–50 of 1,001")
            assert page.get_by_role("button", name="Previous").get_attribute("aria-disabled") == "true"
            page.goto(f"{site}?page=21")
            page.locator(".pill", has_text="unreadable").wait_for()
            assert page.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
            assert HOSTILE in page.locator("table.list").inner_text(), "the name of a task is text"

    def test_a_user_filters_and_finds_the_same_runs_after_looking_at_one(self, browser: Browser, site: str) -> None:
        with browser_page(browser) as page:
            page.goto(site)
            page.get_by_label("State").select_option("Failed")
            assert until(lambda: count(page) == "1–50 of 200")
            page.get_by_label("Search").fill("train-00")
            assert until(lambda: count(page) == "20 in total")
            page.locator("table.list tbody a").nth(1).click()
            page.locator("h1", has_text="train-0005").wait_for()
            page.go_back()
            assert until(lambda: count(page) == "20 in total")
            assert page.get_by_label("Search").input_value() == "train-00"
            page.get_by_label("Search").fill("nothing of this name")
            page.get_by_text("No training matches the filters.").wait_for()
            page.get_by_role("button", name="Clear the filters").click()
            assert until(lambda: count(page) == "1–50 of 1,001")
            assert page.evaluate("document.activeElement.type") == "search"
