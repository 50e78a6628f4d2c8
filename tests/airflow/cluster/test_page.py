"""The page of a run on a cluster: it is written while the task waits and remains after the run is deleted."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stepset_airflow.page.document import KEY
from stepset_airflow.page.queries import run_page
from tests.airflow.cluster.conftest import Tasks
from tests.airflow.cluster.scene import meanwhile
from tests.airflow.cluster.test_matrix import WAYS
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import HOME, DagRun
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

TIMEOUT = 540.0
"""Seconds; on a busy machine pods take minutes to start."""

FAILS_ON_SIGNAL = """
    import json, os, time
    rank, step = os.environ["RANK"], 0
    while not os.path.exists("/tmp/fail"):
        step += 1
        if rank == "0":
            report = {"step": step, "progress": min(1, step / 10000), "metrics": {"loss": 1 / step}}
            print(json.dumps({"stepset": report}), flush=True)
        print("step", step, flush=True)
        time.sleep(0.2)
    if rank == "1":
        int("no number")
    time.sleep(120)
"""


def document_of(dag_id: str) -> dict[str, Any]:
    """The page's document of a DAG's only run in Airflow's database; empty before there is one.

    Reads the database directly, because another thread is importing Airflow's models.
    """
    with closing(sqlite3.connect(HOME / "airflow.db", timeout=30)) as database:
        query = "SELECT value FROM xcom WHERE dag_id = ? AND key = ?"
        row = database.execute(query, (dag_id, KEY)).fetchone()
    return json.loads(row[0]) if row else {}


def page_of(run: DagRun) -> dict[str, Any]:
    """The page's document as the API server reads it."""
    from airflow.utils.session import create_session

    ti = run.tasks["train"]
    with create_session() as session:
        found = run_page(session, ti.dag_id, ti.run_id, ti.task_id, ti.map_index)
    assert found is not None
    training: dict[str, Any] = found["training"]
    return training


@WAYS
def test_the_page_shows_a_run_while_it_runs_and_after_it_is_deleted(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__STEPSET__LOGS_URL", "https://logs.example/?in={namespace}&pod={pod}&rank={rank}")
    path: Path = write_dag(tasks.train(num_nodes=2, deferrable=deferrable), FAILS_ON_SIGNAL)
    dag_id = path.parent.name
    seen: list[dict[str, Any]] = []

    def look() -> bool:
        now = document_of(dag_id)
        seen[:] = [now]
        return bool(now.get("phase") == "Running" and len(now["curve"]["points"]) >= 2 and now["ranks"][0][7])

    def look_and_signal() -> None:
        assert until(look, TIMEOUT), "the page was not written while the task waited"
        for pod in tasks.runs.pods():
            about = pod["metadata"]
            tasks.runs.cluster.kubectl("exec", about["name"], "-n", about["namespace"], "--", "touch", "/tmp/fail")

    with meanwhile(look_and_signal):
        run = run_dag(path)
    assert run.task_state("train") == "failed", run.explained()
    live = seen[-1]
    assert [row[4] for row in live["ranks"]] == ["Running", "Running"]
    assert live["namespace"] == tasks.runs.namespace
    assert live["failure"] is None

    link = run.xcom("train", key="_link_FailedRankLink")
    assert link.startswith(f"https://logs.example/?in={tasks.runs.namespace}&pod=train-")
    assert link.endswith("&rank=1")

    (workload,) = tasks.workloads()
    tasks.runs.cluster.kubectl("delete", "jobset", workload["metadata"]["name"], "-n", tasks.runs.namespace)
    assert until(lambda: not tasks.workloads())
    last = page_of(run)
    assert last["phase"] == "Failed"
    assert "rank 1" in last["failure"]["headline"]
    assert ["error", ["ValueError: invalid literal for int() with base 10: 'no number'"]] in last["failure"]["rows"]
    assert [each["phase"] for each in last["timeline"]][-2:] == ["Running", "Failed"]
    assert last["timeline"] == sorted(last["timeline"], key=lambda each: each["at"])
    assert last["curve"]["points"][-1][0] >= live["curve"]["points"][-1][0]
