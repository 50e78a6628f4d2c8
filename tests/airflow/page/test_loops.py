"""The page of Airflow 3.4: iterations of a loop, the comparison of a mapped task, and filters of the list."""

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


MAPPED = """
DistributedTrainOperator.partial(
    task_id="train", backend="local", framework="plain", script="train.py"
).expand(args=[["--lr", "0.1"], ["--lr", "0.2"]])
"""


def test_the_runs_of_a_mapped_task_are_compared_and_found(write_dag: WriteDag, run_dag: RunDag, server: Server) -> None:
    run = run_dag(write_dag(MAPPED, "print('hello')"))
    assert run.state == "success", run.explained()
    give_to_red_team()
    ti = run.tasks["train[0]"]
    path = f"/stepset/api/dags/{ti.dag_id}/dagRuns/{quote(ti.run_id)}/tasks/train/sweep"
    data = server.get(path, "vera").json()
    assert [row["task"]["map_index"] for row in data["runs"]] == [0, 1]
    assert [row["training"]["parameters"]["lr"] for row in data["runs"]] == ["0.1", "0.2"]
    assert server.get(path.replace("/train/", "/other/"), "vera").status_code == 404
    wanted = f"/stepset/api/runs?text={ti.dag_id}&phase="
    assert [server.get(wanted + phase, "vera").json()["total"] for phase in ("Succeeded", "Failed")] == [2, 0]
