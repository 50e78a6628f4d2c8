"""An account with fewer rights than `stepset rbac` grants: stepset works without the optional rights."""

from __future__ import annotations

import json

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

WRITES = "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('0.5')"


def may_not_see_events(tasks: Tasks) -> None:
    """Removes the right to read events from the account's Role."""
    runs = tasks.runs
    (role,) = [
        each for each in runs.get("roles")["items"] if any("events" in rule["resources"] for rule in each["rules"])
    ]
    role["rules"] = [rule for rule in role["rules"] if "events" not in rule["resources"]]
    runs.cluster.kubectl("replace", "-n", runs.namespace, "-f", "-", text=json.dumps(role))


@pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
def test_a_task_without_the_right_to_read_events_trains_and_warns_once(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    may_not_see_events(tasks)
    runs = tasks.runs
    run = run_dag(write_dag(tasks.train(deferrable=deferrable), WRITES))
    assert run.task_state("train") == "success", run.explained()
    assert run.xcom("train") == 0.5
    (warning,) = [line for line in run.lines if line.startswith("diagnoses may lack details: ")]
    assert "rbac: events is forbidden" in warning
    requested = f"--backend airflow --namespace {runs.namespace} --target jobset --account {runs.namespace}/submitter"
    assert warning.endswith(f"stepset rbac {requested} | kubectl apply -f -")
    assert any(line.startswith("run ") and " succeeded in " in line for line in run.lines), run.explained()
    assert len(tasks.workloads()) == 1


FAILS = "import sys; print('about to'); sys.exit('the data is not there')"


@pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
def test_a_failure_is_diagnosed_from_pods_and_ranks_without_the_right_to_read_events(
    write_dag: WriteDag, run_dag: RunDag, tasks: Tasks, deferrable: bool
) -> None:
    may_not_see_events(tasks)
    run = run_dag(write_dag(tasks.train(deferrable=deferrable), FAILS))
    assert run.task_state("train") == "failed", run.explained()
    assert "rank 0" in str(run.error)
    assert "the data is not there" in str(run.error)
    assert len([line for line in run.lines if line.startswith("diagnoses may lack details: ")]) == 1
