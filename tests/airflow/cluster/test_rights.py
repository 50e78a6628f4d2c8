"""An account that may do less than `stepset rbac` gives: what is not needed is done without."""

from __future__ import annotations

import json

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

WRITES = "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('0.5')"


@pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
def test_who_may_not_see_events_trains_without(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    runs = tasks.runs
    (role,) = [
        each for each in runs.get("roles")["items"] if any("events" in rule["resources"] for rule in each["rules"])
    ]
    role["rules"] = [rule for rule in role["rules"] if "events" not in rule["resources"]]
    runs.cluster.kubectl("replace", "-n", runs.namespace, "-f", "-", text=json.dumps(role))
    run = run_dag(write_dag(tasks.train(deferrable=deferrable), WRITES))
    assert run.task_state("train") == "success", run.explained()
    assert run.xcom("train") == 0.5
    assert any(line.endswith(": Succeeded, 1 ranks") for line in run.lines), run.explained()
    assert len(tasks.workloads()) == 1
