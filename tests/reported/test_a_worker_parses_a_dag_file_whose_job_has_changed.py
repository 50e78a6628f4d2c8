"""A worker that executes a task parses the DAG file although the job's files have changed since the run was created.

Without this rule, a task that only has to follow its run fails, because Airflow finds no DAG in the file. The DAG
processor still reports the problem, and a task that has to create a run fails with this problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.definitions._internal import dag_parsing_context
from airflow.sdk.exceptions import AirflowFailException

from tests.airflow.conftest import RunDag, WriteDag

pytestmark = pytest.mark.airflow

LOCAL = 'task_id="train", backend="local", framework="plain", num_nodes=1'
TASKS = {
    "script: no such file": f'DistributedTrainOperator({LOCAL}, script="deleted.py")',
    "job: no such file": f'DistributedTrainOperator({LOCAL}, job="deleted.yaml")',
    "not readable as YAML": f'DistributedTrainOperator({LOCAL}, job="broken.yaml")',
    "num_nodes": f'DistributedTrainOperator({LOCAL.replace("num_nodes=1", "num_nodes=0")}, script="train.py")',
}
PROBLEMS = pytest.mark.parametrize(("problem", "task"), TASKS.items(), ids=["script", "job", "file", "value"])


def parsed(path: Path) -> BundleDagBag:
    return BundleDagBag(dag_folder=str(path), bundle_path=path.parent, bundle_name="tests", load_op_links=False)


@contextmanager
def worker_of(path: Path) -> Iterator[None]:
    """The context in which a worker parses the file. Airflow's own context manager leaves its variables set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(dag_parsing_context._AIRFLOW_PARSING_CONTEXT_DAG_ID, path.parent.name)
        patch.setenv(dag_parsing_context._AIRFLOW_PARSING_CONTEXT_TASK_ID, "train")
        yield


def written(write_dag: WriteDag, task: str) -> Path:
    path = write_dag(task, "print('trained')")
    (path.parent / "broken.yaml").write_text("num_nodes: [")
    return path


@PROBLEMS
@pytest.mark.usefixtures("airflow_db")
def test_the_dag_processor_reports_the_problem(write_dag: WriteDag, problem: str, task: str) -> None:
    (error,) = parsed(written(write_dag, task)).import_errors.values()
    assert problem in error


@PROBLEMS
@pytest.mark.usefixtures("airflow_db")
def test_a_worker_parses_the_file(write_dag: WriteDag, problem: str, task: str) -> None:
    path = written(write_dag, task)
    with worker_of(path):
        bag = parsed(path)
    assert not bag.import_errors
    assert bag.dags[path.parent.name].task_ids == ["train"]


@PROBLEMS
def test_a_task_that_creates_a_run_fails_with_the_problem(
    write_dag: WriteDag, run_dag: RunDag, problem: str, task: str
) -> None:
    path = written(write_dag, task)
    with worker_of(path):
        run = run_dag(path)
    assert isinstance(run.error, AirflowFailException)
    assert problem.rpartition(": ")[2] in str(run.error)


@pytest.mark.usefixtures("airflow_db")
def test_a_worker_does_not_ignore_an_unknown_argument(write_dag: WriteDag) -> None:
    path = write_dag(f'DistributedTrainOperator({LOCAL}, script="train.py", num_node=2)', "print('trained')")
    with worker_of(path):
        (error,) = parsed(path).import_errors.values()
    assert "did you mean 'num_nodes'" in error
