"""A user finds, compares and opens runs with the keyboard only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.airflow.page.conftest import browser_page
from tests.airflow.page.stored import StoredRuns
from tests.airflow.page.test_list import add_thousand, count
from tests.airflow.page.test_sweep import document, losses
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]


@pytest.fixture(scope="module", autouse=True)
def runs(stored: StoredRuns) -> None:
    """A thousand runs, and a mapped task with five."""
    add_thousand(stored)
    stored.add_all([("dag", "sweep", document(index, losses(index)), {"map_index": index}) for index in range(5)])


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    with browser_page(browser) as opened:
        opened.goto(site)
        opened.locator("table.list tbody tr").nth(49).wait_for()
        yield opened


def focused(page: Page) -> str:
    """The text of the focused element, or what it is."""
    here = "document.activeElement"
    return str(page.evaluate(f"{here}.type === 'search' ? 'search' : {here}.innerText.trim() || {here}.tagName"))


def tab_to(page: Page, wanted: str) -> int:
    """Presses Tab until the focus is on an element with this text; returns how often."""
    for number in range(1, 30):
        page.keyboard.press("Tab")
        if focused(page) == wanted:
            return number
    raise AssertionError(f"Tab does not reach {wanted!r}")


def row(page: Page) -> int:
    """The index of the focused row."""
    return int(page.evaluate("document.activeElement.closest('tbody tr')?.sectionRowIndex ?? -1"))


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_a_thousand_runs_are_one_stop_of_the_tab_key(page: Page) -> None:
    tab_to(page, "search")
    press(page, "Tab", "Tab", "Tab")
    assert row(page) == 0
    press(page, "Tab")
    assert row(page) == -1


def test_a_user_searches_a_run_and_opens_it(page: Page) -> None:
    tab_to(page, "search")
    page.keyboard.type("train-01")
    assert until(lambda: count(page) == "1–50 of 100")
    press(page, "ArrowDown", "ArrowDown", "PageDown", "ArrowRight")
    assert (row(page), focused(page)) == (11, "train-0111")
    press(page, "Home")
    assert focused(page).startswith("Succeeded")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focused cell is visible"
    press(page, "Enter")
    page.locator("h1", has_text="train-0111").wait_for()
    assert tab_to(page, "All trainings") == 1
    press(page, "Enter")
    page.locator("table.list tbody tr").nth(49).wait_for()


def test_a_slash_in_the_table_goes_back_to_the_search(page: Page) -> None:
    tab_to(page, "search")
    press(page, "ArrowDown", "Control+End")
    assert row(page) == 49
    press(page, "/")
    assert focused(page) == "search"
    page.keyboard.type("a/b")
    assert page.get_by_label("Search").input_value() == "a/b"


def test_a_user_turns_the_pages_and_the_focus_stays(page: Page) -> None:
    tab_to(page, "Next")
    press(page, "Enter", "Enter")
    assert until(lambda: count(page) == "101–150 of 1,005")
    assert focused(page) == "Next"


def test_new_runs_do_not_move_the_focus(page: Page, stored: StoredRuns) -> None:
    tab_to(page, "search")
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    before = focused(page)
    stored.add("dag", "newest", document(7, losses(0)))
    assert until(lambda: "newest" in page.inner_text("table.list tbody"))
    assert (row(page), focused(page)) == (3, before)


def test_a_user_compares_the_runs_of_a_mapped_task(page: Page, site: str) -> None:
    page.goto(f"{site}?dag_id=dag&run_id=run&task_id=sweep&map_index=2")
    page.locator("h1", has_text="train-2").wait_for()
    tab_to(page, "Compare with the other runs of this task")
    press(page, "Enter")
    page.locator("table.sweep tbody tr").nth(4).wait_for()
    tab_to(page, "lr")
    press(page, "Enter")
    assert page.locator("table.sweep tbody a").all_inner_texts() == ["[3]", "[2]", "[1]", "[0]", "[4]"]
    assert focused(page).startswith("lr")
    tab_to(page, "[3]")
    press(page, "ArrowDown", "ArrowRight")
    assert page.locator(".overlay .here").get_attribute("data-place") == "2"
    press(page, "Enter")
    page.locator("h1", has_text="train-2").wait_for()
