"""The runs of a mapped task side by side: a curve and the parameters of each, sorted by a metric."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.run_status import Phase, Progress, RunStatus
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.stored_document import read_document
from stepset_airflow.page.sweep import MAX_RUNS
from stepset_airflow.run.parameters import MAX_PARAMETERS, parameters_of
from tests.airflow.page.conftest import browser_page
from tests.airflow.page.stored import StoredRuns
from tests.colours import poor_contrasts
from tests.fuzzing import FUZZED
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]

CREATED = 1_767_268_800.0
RATES = ("0.5", "0.05", "0.005", "1e-4", "10")
LAST = {0: 0.9, 1: 0.1, 2: 0.4, 4: 2.5}
"""Map index -> the last loss; the fourth run has reported none."""
HOSTILE = "<img src=x onerror=alert(1)>"
PATH = "/api/dags/dag/dagRuns/run/tasks/train/sweep"


def document(index: int, metrics: list[dict[str, float]]) -> dict[str, Any]:
    task = SimpleNamespace(
        args=["--epochs", "3", "--lr", RATES[index % len(RATES)], "--name", f"{HOSTILE}{index}"], num_nodes=2
    )
    run = RunStatus(f"train-{index}", "train", "kubernetes", Phase.RUNNING, created=CREATED, started=CREATED)
    history = RunHistory({"namespace": "ml", "try_number": 1, "parameters": parameters_of(task)})
    history.record(run, CREATED + 1)
    for step, values in enumerate(metrics, 1):
        history.record(run.with_(progress=Progress(step * 10, None, values)), CREATED + step)
    history.record(run.with_(phase=Phase.SUCCEEDED, finished=CREATED + 10 + index), CREATED + 100)
    found: dict[str, Any] = json.loads(json.dumps(history.document(CREATED + 101)))
    return found


def losses(index: int) -> list[dict[str, float]]:
    if index not in LAST:
        return []
    return [{"accuracy": step / 20 + index / 100, "loss": LAST[index] + (20 - step) / 10} for step in range(1, 21)]


@pytest.fixture(scope="module", autouse=True)
def runs(stored: StoredRuns) -> None:
    stored.add_all(
        [
            ("dag", "train", document(index, losses(index)), {"map_index": index, "state": "success"})
            for index in range(5)
        ]
    )
    stored.add("dag", "train", "foreign", map_index=5)
    stored.add_all([("dag", "large", document(n, losses(n % 3)), {"map_index": n}) for n in range(MAX_RUNS + 20)])


@pytest.fixture
def client(stored: StoredRuns) -> Iterator[Any]:
    from fastapi.testclient import TestClient

    with TestClient(stored.application) as made:
        yield made


def test_the_data_contain_a_curve_and_the_differing_parameters_of_each_run(client: Any) -> None:
    data = client.get(PATH).json()
    assert (data["total"], data["metric"], data["metrics"]) == (6, "loss", ["accuracy", "loss"])
    assert data["parameters"] == ["lr", "name"], "the number of epochs is the same in all runs"
    assert [run["training"] and run["training"]["parameters"]["lr"] for run in data["runs"]] == [*RATES, None]
    assert [len(run["points"]) for run in data["runs"]] == [20, 20, 20, 0, 20, 0]
    assert data["runs"][1]["training"]["values"] == {"accuracy": pytest.approx(1.01), "loss": pytest.approx(0.1)}
    other = client.get(PATH, params={"metric": "accuracy"}).json()
    assert other["runs"][0]["points"][-1] == [200, pytest.approx(1.0)]
    assert client.get(PATH, params={"metric": "no such metric"}).json()["metric"] == "loss"


def test_a_metric_that_is_no_longer_defined_has_no_last_value(client: Any, stored: StoredRuns) -> None:
    stored.add("dag", "diverged", document(0, [{"loss": 0.5, "accuracy": 0.5}, {"accuracy": 0.25}]), map_index=0)
    (run,) = client.get(PATH.replace("train/", "diverged/")).json()["runs"]
    assert run["training"]["values"] == {"loss": None, "accuracy": 0.25}


def test_a_large_sweep_is_bounded(client: Any) -> None:
    data = client.get(PATH.replace("train/", "large/")).json()
    assert (data["total"], len(data["runs"])) == (MAX_RUNS + 20, MAX_RUNS)


def test_a_user_gets_only_what_the_user_may_read(client: Any, stored: StoredRuns) -> None:
    assert client.get(PATH.replace("train/", "other/")).status_code == 404
    try:
        stored.user = "XCOM"
        data = client.get(PATH).json()
        assert data["metrics"] == [] and all(run["points"] == [] for run in data["runs"])
        stored.user = "TASK_INSTANCE"
        assert client.get(PATH).status_code == 403
    finally:
        stored.user = "all"


VALUES = st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3))


@FUZZED
@given(st.lists(VALUES, max_size=100) | VALUES, st.dictionaries(st.text(), VALUES, max_size=60), VALUES)
def test_any_arguments_are_bounded_parameters_of_a_readable_document(args: Any, named: Any, field: Any) -> None:
    found = parameters_of(SimpleNamespace(args=args, op_kwargs=named, op_args=args, image=field, job={"args": args}))
    assert len(found) <= MAX_PARAMETERS
    assert read_document({**document(0, []), "parameters": found}) is not None


def test_neither_variables_nor_the_text_of_a_function_are_parameters() -> None:
    task = SimpleNamespace(env={"TOKEN": "secret"}, function="def f(): ...", job={"env": {"A": "secret"}}, op_args=[1])
    assert parameters_of(task) == [["argument 1", "1"]]


def test_airflow_masks_parameters_with_sensitive_names() -> None:
    task = SimpleNamespace(args=["--password", "hunter2", "--lr", "0.1"], op_kwargs={"token": "hunter2"})
    assert parameters_of(task) == [["password", "***"], ["lr", "0.1"], ["token", "***"]]


def indexes(page: Page) -> list[str]:
    return page.locator("table.sweep tbody a").all_inner_texts()


def heading(page: Page, name: str) -> Any:
    return page.get_by_role("columnheader", name=name)


class TestBrowser:
    @pytest.fixture
    def page(self, browser: Browser, site: str) -> Iterator[Page]:
        with browser_page(browser) as opened:
            opened.goto(f"{site}?dag_id=dag&run_id=run&task_id=train&view=sweep")
            opened.locator("table.sweep tbody tr").nth(5).wait_for()
            yield opened

    def test_the_runs_are_sorted_by_the_metric_with_a_curve_for_each(self, page: Page) -> None:
        assert indexes(page) == ["[1]", "[2]", "[0]", "[4]", "[3]", "[5]"], "runs without a loss are the last ones"
        assert heading(page, "loss").get_attribute("aria-sort") == "ascending"
        assert page.locator(".overlay .series").count() == 4
        first = page.locator("table.sweep tbody tr").first.inner_text().split("\t")
        assert [text.strip() for text in first] == ["[1]", "Succeeded", "0.05", f"{HOSTILE}1", "1.01", "0.1", "11 s"]

    def test_another_metric_and_another_column(self, page: Page) -> None:
        page.get_by_label("Metric").select_option("accuracy")
        assert until(lambda: indexes(page)[0] == "[4]")
        assert heading(page, "accuracy").get_attribute("aria-sort") == "descending"
        heading(page, "lr").get_by_role("button").press("Enter")
        assert indexes(page) == ["[3]", "[2]", "[1]", "[0]", "[4]", "[5]"], "numbers are sorted as numbers"
        page.keyboard.press("Enter")
        assert indexes(page) == ["[4]", "[0]", "[1]", "[2]", "[3]", "[5]"]
        assert "sort parameter lr" in page.evaluate("document.activeElement.dataset.focus")
        assert "metric=accuracy" in page.url

    def test_a_focused_row_marks_its_curve_and_links_to_its_run(self, page: Page) -> None:
        page.locator("table.sweep tbody a").first.focus()
        assert page.locator(".overlay .here").get_attribute("data-place") == "1"
        page.keyboard.press("Enter")
        page.locator("h1", has_text="train-1").wait_for()
        page.get_by_role("link", name="Compare with the other runs of this task").click()
        page.locator("table.sweep tbody tr").nth(5).wait_for()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_every_text_has_enough_contrast(self, page: Page, scheme: str) -> None:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert poor_contrasts(page, 4.5) == []
