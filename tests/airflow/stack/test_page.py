"""The page of a deferred run: a real triggerer writes it to Airflow's database while the run continues."""

from __future__ import annotations

from typing import Any

import pytest

from stepset_airflow.page.document import KEY
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import Task
from tests.airflow.stack.training import signal
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]

TIMEOUT = 540.0
"""Seconds; on a busy machine pods take minutes to start."""

FAILS_ON_SIGNAL = """
import json, os, time
for step in range(1, 100000):
    print(json.dumps({"stepset": {"step": step, "metrics": {"loss": 1 / step}}}), flush=True)
    time.sleep(0.2)
    if os.path.exists("/tmp/first"):
        int("no number")
"""


def document_of(task: Task) -> dict[str, Any]:
    """The page's document; empty before there is one."""
    return task.result(KEY, absent={})


def test_the_page_shows_a_deferred_run_while_it_runs_in_each_try(stage: Stage) -> None:
    text = stage.train(deferrable=True, retries=1, retry_delay=0.1, on_finish_action="delete")
    task = stage.run(text, FAILS_ON_SIGNAL).task()

    def live(number: int) -> bool:
        now = document_of(task)
        return (
            now.get("try_number") == number and now["phase"] == "Running" and bool(now["curve"]["points"])
        ) and task.state == "deferred"

    assert until(lambda: live(1), TIMEOUT), (document_of(task), task.explained())
    signal(stage, "first")
    assert until(lambda: live(2), TIMEOUT), (document_of(task), task.explained())
    signal(stage, "first")
    assert task.wait("failed")["try_number"] == 2
    last = document_of(task)
    assert last["phase"] == "Failed"
    assert "ValueError: invalid literal" in last["failure"]["headline"]
    assert [each["phase"] for each in last["timeline"]][-2:] == ["Running", "Failed"]
    assert last["curve"]["points"][0][0] <= last["curve"]["points"][-1][0]
    stage.nothing_left()
