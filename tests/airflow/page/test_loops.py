"""The page shows the iteration of a loop that the user has selected in Airflow's UI (Airflow 3.4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.page.server import Server, give_to_red_team

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.airflow, pytest.mark.local]

LOOP = """
@task_group
def attempts():
    DistributedTrainOperator(task_id="train", backend="local", framework="plain", script="train.py")

attempts.loop(max_iterations=2)
"""


def test_the_tab_and_the_list_show_each_iteration(
    write_dag: WriteDag, run_dag: RunDag, server: Server, page: Page
) -> None:
    run = run_dag(write_dag(LOOP, "print('hello')", "from airflow.sdk import task_group"))
    assert run.state == "success", run.explained()
    give_to_red_team()
    tis = [run.tasks[f"attempts.train[{index}]"] for index in range(2)]
    where = f"/dags/{tis[0].dag_id}/runs/{quote(tis[0].run_id, safe='')}/tasks/attempts.train/plugin/stepset-training"
    queries = [f"region_id={ti.region_id}&region_index={ti.region_index}" for ti in tis]
    for number, query in enumerate(queries):
        page.goto(f"{server.address}{where}?{query}")
        about = page.frame_locator("iframe[title=Training]").get_by_text(re.compile(r"attempts\.train, iteration \d"))
        about.first.wait_for()
        assert f"iteration {number} " in about.first.inner_text(), query

    page.goto(f"{server.address}/stepset/training")
    rows = page.locator("table.list tbody tr").filter(has_text=tis[0].dag_id)
    rows.nth(1).wait_for()
    rows.filter(has_text="iteration 0").locator("a").click()
    page.get_by_text(re.compile(r"attempts\.train, iteration 0 ")).first.wait_for()
