"""The page in a real browser: a running and a failed training, the keyboard, the light and the dark theme, and access.

Access is tested in the same file, because both need a started Airflow and a training.
`STEPSET_SCREENSHOTS=docs/images` renews the pictures of the documentation (`make screenshots`).
"""

from __future__ import annotations

import io
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepset.watch.present.sentences import duration
from tests.airflow.harness import HOME
from tests.airflow.page.conftest import browser_page, cookies_of
from tests.airflow.page.server import Server
from tests.airflow.page.training import ERROR, RANKS, TASK, Training
from tests.colours import poor_contrasts
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]

WORDS = "import('/stepset/static/words.js')"
PATHS = ("/stepset/training", "/stepset/static/training.js", "/stepset/api/runs")


def wait_for(page: Page, expression: str, argument: object = None) -> None:
    """Waits until an expression is true in the page; polls, because the page's policy allows no waiting script."""
    assert until(lambda: bool(page.evaluate(expression, argument))), f"{expression}: {page.inner_text('main')}"


def opened(page: Page, server: Server, path: str) -> Page:
    page.goto(f"{server.address}{path}")
    page.wait_for_selector("main:not([aria-busy])")
    return page


def states(page: Page) -> list[str]:
    return page.locator("table.ranks tbody tr").evaluate_all("rows => rows.map(row => row.dataset.state)")


def focused(page: Page) -> list[str]:
    """The row and the text of the focused cell."""
    here = "document.activeElement"
    return list(page.evaluate(f"[{here}.closest('tr')?.dataset.key ?? '', {here}.textContent]"))


def picture(page: Page, name: str, *, width: int, height: int) -> None:
    """Saves a picture for the documentation if STEPSET_SCREENSHOTS is set; small enough to be readable there."""
    if folder := os.environ.get("STEPSET_SCREENSHOTS"):
        from PIL import Image

        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(1500)
        taken = Image.open(io.BytesIO(page.screenshot()))
        Path(folder).mkdir(parents=True, exist_ok=True)
        taken.convert("RGB").save(Path(folder) / f"{name}.png", optimize=True)


def test_the_page_shows_the_ranks_of_a_running_training(page: Page, server: Server, training: Training) -> None:
    opened(page, server, training.page)
    wait_for(page, "document.querySelectorAll('[data-state=Running] .state').length == 4")
    assert page.locator("header .pill").inner_text() == "Running"
    assert states(page) == ["Running"] * RANKS
    assert page.locator(".facts div:nth-child(2)").inner_text().split("\n") == ["Ranks", f"{RANKS}/{RANKS} running"]
    wait_for(page, "document.querySelector('table.ranks tbody tr .last-line').textContent.startsWith('epoch ')")


def test_the_page_updates_by_itself(page: Page, server: Server, training: Training) -> None:
    opened(page, server, training.page)
    step = "document.querySelector('.facts div:nth-child(4) dd').textContent"
    wait_for(page, f"{step} != '–'")
    wait_for(page, f"before => {step} != before", page.evaluate(step))
    wait_for(page, "document.querySelector('polyline').getAttribute('points').split(' ').length > 3")
    assert page.locator("figcaption span").all_inner_texts() == ["loss", "accuracy"]


def test_a_button_shows_the_stacks_of_healthy_ranks(browser: Browser, server: Server, training: Training) -> None:
    with browser_page(browser, cookies_of("rosa", server)) as page:
        opened(page, server, training.page)
        page.get_by_role("button", name="Read the stacks").click()
        frame = page.frame_locator("iframe")
        about = frame.locator("h1 + p")
        first = about.inner_text()
        assert "4 ranks" in first
        assert "<module>" in frame.locator(".flames .own").first.inner_text()
        assert "train.py" in frame.locator(".flames").first.inner_text()
        page.wait_for_selector("button[aria-disabled=false]")
        page.get_by_role("button", name="Read the stacks").click()
        assert until(lambda: about.inner_text() != first)
        page.wait_for_selector("button[aria-disabled=false]")
        if folder := os.environ.get("STEPSET_SCREENSHOTS"):
            page.locator(".stacks").screenshot(path=str(Path(folder) / "airflow-stacks.png"))
    assert "Running" in training.phase(server), "the ranks continue"


def test_the_arrow_keys_move_through_the_ranks(page: Page, server: Server, training: Training) -> None:
    opened(page, server, training.page)
    page.locator("table.ranks tbody tr").nth(3).wait_for()
    # The Tab key reaches the grid, which is one stop; the arrow keys move within it.
    for _ in range(12):
        page.keyboard.press("Tab")
        if focused(page)[0]:
            break
    assert focused(page) == ["rank 0", "0"]
    for key, source in (
        ("ArrowDown", "rank 1"),
        ("ArrowDown", "rank 2"),
        ("ArrowUp", "rank 1"),
        ("PageDown", "rank 3"),
    ):
        page.keyboard.press(key)
        assert focused(page)[0] == source
    page.keyboard.press("ArrowRight")
    assert focused(page)[1] == "Running"
    page.keyboard.press("End")
    assert focused(page)[1].startswith("epoch ")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focused cell is visible"
    # Updates do not move the focus.
    updates = "document.querySelector('.facts div:nth-child(4) dd').textContent"
    wait_for(page, f"before => {updates} != before", page.evaluate(updates))
    assert focused(page)[0] == "rank 3"
    page.keyboard.press("Tab")
    assert not focused(page)[0], "one Tab leaves the grid"


def test_the_curves_and_the_filter_of_ranks_work_with_the_keyboard(
    page: Page, server: Server, training: Training
) -> None:
    opened(page, server, training.page)
    curves = page.get_by_role("slider")
    wait_for(page, "document.querySelector('polyline')?.getAttribute('points').split(' ').length > 3")
    curves.focus()
    page.keyboard.press("Home")
    # All reports between two reads of the log are one point: the first may be any of the first steps.
    first = server.get(training.data, "ada").json()["training"]["curve"]["points"][0]
    read = re.match(r"step (\d+): loss ([\d.]+)", str(curves.get_attribute("aria-valuetext")))
    assert read and [float(number) for number in read.groups()] == pytest.approx(first[:2], rel=1e-3)
    page.keyboard.press("ArrowRight")
    assert int(curves.get_attribute("aria-valuenow") or 0) == 1
    chip = page.locator(".chip")
    chip.focus()
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "true"


def test_a_rank_links_to_its_lines_in_the_log(page: Page, server: Server, training: Training) -> None:
    # `dag.test()` writes no log file; a worker's supervisor writes one of this form.
    folder = HOME / f"logs/dag_id={training.dag_id}/run_id={training.run_id}/task_id={TASK}"
    folder.mkdir(parents=True)
    at = "2026-01-01T12:00:00.5Z"
    texts = ("run train: Running", "[rank 0] epoch 1: 1437 samples", "[rank 1] other", "[rank 0] epoch 2: 1437 samples")
    written = [json.dumps({"timestamp": at, "level": "info", "logger": "task", "event": text}) for text in texts]
    (folder / "attempt=1.log").write_text("\n".join(written) + "\n")
    opened(page, server, training.page)
    page.get_by_title("Lines of rank 0 in the log").click()
    page.locator(".log li").nth(1).wait_for()
    shown = [line.replace("\u202f", " ") for line in page.locator(".log li").all_inner_texts()]
    assert shown == [f"1/1/2026 12:00:00 PM epoch {number}: 1437 samples" for number in (1, 2)]
    with (folder / "attempt=1.log").open("a") as log:
        log.write(json.dumps({"timestamp": at, "event": "[rank 0] epoch 3: 1437 samples"}) + "\n")
    page.locator(".log li", has_text="epoch 3").wait_for()
    page.get_by_role("link", name="Run train-").click()
    page.get_by_title("Lines of rank 3 in the log").click()
    page.get_by_text("The task's log has no lines of rank 3.").wait_for()
    assert re.search(r"stepset logs train-\w+-1 --ranks 3$", page.inner_text("header"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(page: Page, server: Server, training: Training, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    opened(page, server, training.page)
    page.locator("figcaption output").first.wait_for()
    # 4.5 to 1: WCAG 2.2, success criterion 1.4.3.
    assert poor_contrasts(page, 4.5) == []


def test_the_page_is_a_tab_of_a_task_instance_and_has_airflow_s_theme(
    page: Page, server: Server, training: Training
) -> None:
    page.goto(f"{server.address}{training.tab}")
    inner = page.frame_locator("iframe[title=Training]")
    inner.locator("table.ranks tbody tr").nth(RANKS - 1).wait_for()
    picture(page, "airflow-training-light", width=1400, height=1000)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = inner.locator("body").evaluate(f"() => {ground}")
    # As Airflow's theme switch does, in Airflow's document.
    page.evaluate("localStorage.setItem('theme', 'dark')")
    frame = next(each for each in page.frames if "/stepset/training" in each.url)
    assert until(lambda: bool(frame.evaluate(f"{ground} != {light!r}")))
    assert frame.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_task_instance_links_to_the_page_while_it_runs(server: Server, training: Training) -> None:
    path = f"/api/v2/dags/{training.dag_id}/dagRuns/{training.run_id}/taskInstances/{TASK}/links"
    links = server.get(path.replace("+", "%2B"), "vera").json()["extra_links"]
    assert links["Training"].endswith(training.tab)


def test_the_list_of_trainings_links_to_each_of_them(page: Page, server: Server, training: Training) -> None:
    opened(page, server, "/stepset/training")
    row = page.locator("table.list tbody tr").filter(has_text=training.dag_id)
    row.wait_for()
    assert "4 ranks" in row.inner_text()
    row.locator("a").focus()
    page.keyboard.press("Enter")
    page.locator("table.ranks tbody tr").nth(RANKS - 1).wait_for()


def test_the_list_works_in_the_frame_of_airflow_s_ui(page: Page, server: Server, training: Training) -> None:
    page.goto(f"{server.address}/plugin/stepset-trainings")
    inner = page.frame_locator("iframe[title=Training]")
    inner.get_by_label("Search").fill(training.dag_id)
    inner.locator("table.list tbody tr", has_text=training.dag_id).locator("a").first.click()
    inner.get_by_title("Lines of rank 0 in the log").click()
    inner.locator("h1", has_text="Lines of rank 0").wait_for()
    inner.get_by_role("link", name="All trainings").click()
    inner.get_by_label("Search").wait_for()


def test_only_users_who_may_change_task_instances_get_the_stacks(server: Server, training: Training) -> None:
    path = f"{training.data}/stacks"
    for user, status in ((None, 401), ("bert", 403), ("vera", 403)):
        answer = server.get(path, user)
        assert answer.status_code == status, (user, answer.text)
        assert "train.py" not in answer.text
    answer = server.get(path, "rosa")
    assert answer.status_code == 200, answer.text
    assert "train.py" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script" not in policy and policy.endswith("sandbox")
    assert [server.get(training.data, user).json()["stacks"] for user in ("vera", "rosa")] == [False, True]


def test_a_failure_is_shown_with_its_diagnosis_and_stays_after_a_reload(
    page: Page, server: Server, training: Training
) -> None:
    opened(page, server, training.page)
    wait_for(page, "document.querySelectorAll('[data-state=Running] .state').length == 4")
    training.signal("fail")
    wait_for(page, f"document.querySelector('.diagnosis').textContent.includes({ERROR!r})")
    # The page follows the second try, which fails, too.
    wait_for(page, "document.querySelector('.tries').textContent.includes('Try 1')")
    assert training.process.wait(120) == 0
    wait_for(page, "document.querySelector('header .pill').textContent == 'Failed'")
    diagnosis = page.locator(".diagnosis").inner_text()
    assert "UserError: rank 3 (pod node-1) exited with code 1" in diagnosis
    assert ERROR in diagnosis
    (aftermath,) = (line for line in diagnosis.splitlines() if line.endswith(": stopped because of it"))
    assert sorted(aftermath.partition(":")[0].split(", ")) == ["rank 0", "rank 1", "rank 2"]
    assert states(page) == ["Stopped", "Stopped", "Stopped", "Failed"]
    assert page.locator(".phases b").all_inner_texts()[-2:] == ["Running", "Failed"]
    assert "Failed" in page.locator("#announcement").inner_text(), "screen readers announce it"
    assert "try 2 of 2" in page.locator("header").inner_text()
    (before,) = page.locator(".tries li").all_inner_texts()
    assert ERROR in before
    page.reload()
    wait_for(page, f"document.querySelector('.diagnosis')?.textContent.includes({ERROR!r})")
    assert page.locator("polyline").count() == 2, "the curves stay"
    page.emulate_media(color_scheme="dark")
    assert poor_contrasts(page, 4.5) == []
    picture(page, "airflow-training-dark", width=1180, height=1120)


class TestTexts:
    def test_durations_are_those_of_the_other_interfaces(self, page: Page, server: Server, training: Training) -> None:
        opened(page, server, training.page)
        seconds = [0.0, 3.21, 7.0, 59.97, 60.0, 75.9, 3599.0, 3720.0, 90000.0, 172_799.0, 200_000.0]
        shown = page.evaluate(f"async values => values.map((await {WORDS}).duration)", seconds)
        assert shown == [duration(each) for each in seconds]

    @pytest.mark.parametrize(
        ("stored", "expected"),
        [
            (None, "12:00:00 PM"),
            ('"Asia/Tokyo"', "09:00:00 PM"),
            ('"Nowhere/Town"', "12:00:00 PM"),
            ("?", "12:00:00 PM"),
        ],
    )
    def test_times_are_in_the_time_zone_of_airflow_s_ui(
        self, page: Page, server: Server, training: Training, stored: str | None, expected: str
    ) -> None:
        opened(page, server, training.page)
        if stored is not None:
            page.evaluate("stored => localStorage.setItem('timezone', stored)", stored)
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
        shown = page.evaluate(f"async seconds => (await {WORDS}).clock(seconds)", noon)
        assert shown.replace("\u202f", " ") == f"1/1/2026 {expected}"

    def test_all_times_change_when_the_user_chooses_another_time_zone(
        self, page: Page, server: Server, training: Training
    ) -> None:
        opened(page, server, training.page)
        with page.expect_navigation():
            page.evaluate("setTimeout(() => dispatchEvent(new StorageEvent('storage', { key: 'timezone' })), 0)")


def test_the_page_reports_an_unknown_task_instance(page: Page, server: Server, training: Training) -> None:
    opened(page, server, training.page.replace(f"task_id={TASK}", "task_id=other"))
    assert "no such task instance" in page.get_by_role("alert").inner_text()


class TestAccess:
    """Only users who may read a task instance get the data of its page."""

    def test_only_users_with_read_access_get_the_data(self, server: Server, training: Training) -> None:
        path = training.data
        for user, status in ((None, 401), ("bert", 403), ("vera", 200), ("ada", 200)):
            answer = server.get(path, user)
            assert answer.status_code == status, (user, answer.text)
            assert ("train-" in answer.text) == (status == 200)

        def listed(user: str) -> bool:
            return training.dag_id in server.get("/stepset/api/runs", user).text

        assert (listed("vera"), listed("ada"), listed("bert")) == (True, True, False)

        for wrong in (path.replace("/train", "/other"), f"{path}?map_index=7", path.replace(training.dag_id, "~")):
            assert server.get(wrong, "ada").status_code == 404
        assert server.get(f"{path}?map_index=-2", "ada").status_code == 422
        # A second dag_id, of the user's own DAG, does not bypass the check.
        assert server.get(f"{path}?dag_id=mine", "bert").status_code == 403

    @pytest.mark.parametrize("path", PATHS)
    def test_only_users_who_are_logged_in_get_the_page(self, server: Server, path: str) -> None:
        assert server.get(path).status_code == 401
        assert server.get(path, "bert").status_code == 200

    @pytest.mark.parametrize("name", ["app.py", "..%2Fapp.py", "%2e%2e/app.py", "__init__.py"])
    def test_only_files_of_the_page_are_served(self, server: Server, name: str) -> None:
        assert server.get(f"/stepset/static/{name}", "ada").status_code == 404

    def test_the_page_s_policy_allows_only_its_own_script(self, server: Server) -> None:
        policy = server.get("/stepset/training", "ada").headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy

    def test_airflow_shows_the_page_in_its_navigation_and_at_task_instances(self, server: Server) -> None:
        plugins = server.get("/api/v2/plugins", "ada").json()["plugins"]
        (ours,) = (each for each in plugins if each["name"] == "stepset")
        assert {view["destination"] for view in ours["external_views"]} == {"nav", "task_instance"}
        errors = server.get("/api/v2/plugins/importErrors", "ada").json()["import_errors"]
        assert [each for each in errors if "stepset" in each["source"]] == []
