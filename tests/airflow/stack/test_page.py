"""The page of a run that a real triggerer follows: what it writes is in Airflow's database while it does."""

from __future__ import annotations

from typing import Any

import pytest

from stepset_airflow.page.document import KEY
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import Task
from tests.airflow.stack.training import let
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]

PATIENCE = 540.0
"""Seconds; on a machine busy with other things pods take minutes to begin."""

FAILS_WHEN_TOLD = """
import json, os, time
for step in range(1, 100000):
    print(json.dumps({"stepset": {"step": step, "metrics": {"loss": 1 / step}}}), flush=True)
    time.sleep(0.2)
    if os.path.exists("/tmp/first"):
        int("no number")
"""


def document_of(task: Task) -> dict[str, Any]:
    """What the page shows; empty while there is nothing."""
    return task.result(KEY, absent={})


def test_a_deferred_run_is_seen_while_it_runs_and_in_each_try(stage: Stage) -> None:
    text = stage.train(deferrable=True, retries=1, retry_delay=0.1, on_finish_action="delete")
    task = stage.run(text, FAILS_WHEN_TOLD).task()

    def live(number: int) -> bool:
        now = document_of(task)
        return (
            now.get("try_number") == number and now["phase"] == "Running" and bool(now["curve"]["points"])
        ) and task.state == "deferred"

    assert until(lambda: live(1), PATIENCE), (document_of(task), task.explained())
    let(stage, "first")
    assert until(lambda: live(2), PATIENCE), (document_of(task), task.explained())
    let(stage, "first")
    assert task.wait("failed")["try_number"] == 2
    last = document_of(task)
    assert last["phase"] == "Failed"
    assert "ValueError: invalid literal" in last["failure"]["headline"]
    assert [each["phase"] for each in last["timeline"]][-2:] == ["Running", "Failed"]
    assert last["curve"]["points"][0][0] <= last["curve"]["points"][-1][0]
    stage.nothing_left()
