"""The lines of one rank in the task's log, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from stepset.run_status import Failure, FailureKind, Phase, RankStatus, RunStatus
from stepset_airflow.page.history import RunHistory
from tests.airflow.page.conftest import browser_page
from tests.airflow.page.stored import StoredRuns
from tests.colours import poor_contrasts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]

HOSTILE = "<img src=x onerror=alert(1)>"
FAILURE = Failure(FailureKind.USER_ERROR, "rank 1 exited with code 1", "Fix the training code.", rank=1)
RANKS = tuple(RankStatus(f"rank {rank}", rank, f"node-{rank}", state="Failed") for rank in range(12))


@pytest.fixture(scope="module", autouse=True)
def runs(stored: StoredRuns) -> None:
    history = RunHistory({"namespace": "ml", "target": "jobset", "try_number": 2})
    run = RunStatus("train-1", "train", "kubernetes", created=1e9, world_size=12, ranks=RANKS)
    history.record(run.with_(phase=Phase.FAILED, finished=1e9 + 60, failure=FAILURE), 1e9 + 61)
    stored.add("dag", "train", json.loads(json.dumps(history.document(1e9 + 62))))


@pytest.fixture
def page(browser: Browser, site: str, stored: StoredRuns) -> Iterator[Page]:
    with browser_page(browser, timezone_id="Asia/Tokyo", locale="en-US") as opened:
        opened.goto(f"{site}?dag_id=dag&run_id=run&task_id=train&map_index=-1")
        opened.locator("table.ranks tbody tr").nth(11).wait_for()
        yield opened
        stored.user, stored.log = "all", ""


def log(*events: Any) -> str:
    """A log as Airflow's API returns it."""
    return "".join(json.dumps({"timestamp": "2026-01-01T12:00:00Z", "event": event}) + "\n" for event in events)


def lines(page: Page) -> list[str]:
    return [line.replace("\u202f", " ") for line in page.locator(".log li").all_inner_texts()]


def test_only_the_lines_of_the_rank_are_shown_as_text(page: Page, stored: StoredRuns) -> None:
    stored.log = log(
        "run train-1: Running",
        "[rank 1] first",
        "[rank 11] another",
        f"[rank 1] \x1b[31m{HOSTILE}\x1b[0m",
        " [rank 1] no",
    )
    stored.log += 'no JSON\n[1]\n{"event": 7}\n\n' + log("[rank 1] last").rstrip("\n")
    page.get_by_title("Lines of rank 1 in the log").click()
    page.locator(".log li").nth(2).wait_for()
    at = "1/1/2026 09:00:00 PM "
    assert lines(page) == [f"{at}first", f"{at}{HOSTILE}", f"{at}last"]
    assert page.locator("header [role=status]").inner_text() == "dag · train · try 2 · 3 lines"


def test_a_long_log_is_bounded_and_shows_its_end(page: Page, stored: StoredRuns) -> None:
    stored.log = log(*(f"[rank 2] line {number}" for number in range(5000)), f"[rank 2] {'x' * 2_000_000}")
    page.get_by_title("Lines of rank 2 in the log").click()
    page.locator(".log li").nth(1999).wait_for()
    assert lines(page)[-1].endswith("line 4999"), "a line that is too long is left out"
    assert "the last 2,000 of 5,000 lines" in page.locator("header").inner_text()
    assert page.evaluate(
        "(log => log.scrollTop + log.clientHeight > log.scrollHeight - 9)(document.querySelector('.log'))"
    )


def test_the_diagnosis_links_to_the_lines_of_the_failed_rank(page: Page, stored: StoredRuns) -> None:
    stored.log = log("[rank 1] ValueError: bad")
    page.get_by_role("link", name="All lines of rank 1 in the log").focus()
    page.keyboard.press("Enter")
    page.locator(".log li", has_text="ValueError: bad").wait_for()
    page.get_by_role("link", name="Run train-1").focus()
    page.keyboard.press("Enter")
    page.locator("table.ranks tbody tr").nth(11).wait_for()


def test_a_rank_without_lines_and_a_log_that_may_not_be_read_are_explained(page: Page, stored: StoredRuns) -> None:
    page.get_by_title("Lines of rank 3 in the log").click()
    page.get_by_text("The task's log has no lines of rank 3.").wait_for()
    assert "stepset logs train-1 --ranks 3 --backend kubernetes" in page.locator("header").inner_text()


def test_without_the_permission_for_logs_there_are_no_links(page: Page, stored: StoredRuns) -> None:
    stored.user = "TASK_LOGS"
    page.reload()
    page.locator("table.ranks tbody tr").nth(11).wait_for()
    assert page.locator("table.ranks a").count() == 0
    assert page.get_by_role("link", name="All lines").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(page: Page, stored: StoredRuns, scheme: str) -> None:
    stored.log = log("[rank 1] ValueError: bad")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.get_by_title("Lines of rank 1 in the log").click()
    page.locator(".log li").first.wait_for()
    assert poor_contrasts(page, 4.5) == []
