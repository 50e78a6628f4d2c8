"""A user clears a task, and Airflow discards the task's state with the record of its run, as Airflow 3.4 does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import run_again
from tests.airflow.stack.created import created
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

SLEEPS = "import time; time.sleep(600)"


def test_a_cleared_task_without_a_record_ends_its_active_run_and_starts_a_new_one(
    tasks: Tasks, write_dag: WriteDag, run_dag: RunDag, tmp_path: Path
) -> None:
    path = write_dag(tasks.train(wait_for_completion=False), SLEEPS)
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as jobsets:
        run = run_dag(path)
        assert run.state == "success", run.explained()
        discard_state(path.parent.name)
        cleared = run_again(path, run, clear=True)
        assert not cleared.errors, cleared.explained()
        names = jobsets.names()
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]
    assert until(lambda: [each["metadata"]["name"] for each in tasks.workloads()] == names[1:], 120)


def discard_state(dag_id: str) -> None:
    """Deletes the rows of a DAG's tasks in the task state store."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(TaskStateStoreModel).where(TaskStateStoreModel.dag_id == dag_id))
