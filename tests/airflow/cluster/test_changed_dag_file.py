"""A run that exists does not need its DAG file again: the task ends as its run does, whatever happened to the files.

Each test changes what the job was read from while the run exists. The next worker, which no longer can read the job, or
would read another one, must follow the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.cluster.scene import meanwhile
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import DagRun, last_run, run_again, set_state
from tests.airflow.stack.created import Created, created
from tests.airflow.workers import StartWorker
from tests.cluster.stage import Stage
from tests.violations import at_most
from tests.waiting import STARTS_WITHIN, until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

PROGRAM = (
    "say(f'started-{attempt}-{rank}')",
    "wait_until('end')",
    "if Path(STAGE, 'fail').exists(): raise ValueError('the data is damaged')",
    "if rank == 0: open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps({'attempt': attempt}))",
)
TEMPLATED = ("script", "num_nodes", "namespace", "target")
"""Parameters of the test with templates. After the change, each of them renders to a value with which no run exists."""


@dataclass(frozen=True)
class Trained:
    """A DAG file whose task trains in two pods, which wait for the test.

    Args:
        tasks: source text of tasks, and the account.
        stage: the directory that test and ranks share.
        made: the record of created JobSets.
        write_dag, monkeypatch: the fixtures.
    """

    tasks: Tasks
    stage: Stage
    made: Created
    write_dag: WriteDag
    monkeypatch: pytest.MonkeyPatch

    def written(self, change: str, **fields: Any) -> Path:
        """Writes the DAG file with what `change` needs, and returns its path."""
        job = self.stage.job(f"import json\nSTAGE = {str(self.stage.path)!r}", *PROGRAM)
        text = job.pop("function")
        template = {"spec": job.pop("pod_template")}
        given = {"pod_template": template, "on_finish_action": "delete", "poll_interval": 1, **job, **fields}
        if change == "job file":
            given |= {"script": None, "job": "job.yaml"}
        elif change == "code":
            given |= {"code": "src"}
        elif change == "template":
            values = {"script": "train.py", "num_nodes": job["num_nodes"], "target": "jobset"}
            for name, value in {**values, "namespace": self.tasks.runs.namespace}.items():
                self.monkeypatch.setenv(f"AIRFLOW_VAR_{name.upper()}", str(value))
                given[name] = f"{{{{ var.value.{name} }}}}"
        path = self.write_dag(self.tasks.train(**given), text)
        if change == "job file":
            (path.parent / "job.yaml").write_text(yaml.safe_dump({"name": "train", "script": "train.py"}))
        elif change == "code":
            (path.parent / "src").mkdir()
            (path.parent / "train.py").rename(path.parent / "src" / "train.py")
        return path

    def change(self, change: str, path: Path) -> None:
        """Changes the files of the job, or the values of its templates."""
        if change == "script":
            (path.parent / "train.py").unlink()
        elif change == "job file":
            (path.parent / "job.yaml").write_text("num_nodes: [")
        elif change == "code":
            (path.parent / "src").rename(path.parent / "moved")
        else:
            for name in TEMPLATED:
                self.monkeypatch.setenv(f"AIRFLOW_VAR_{name.upper()}", "statefulset" if name == "target" else "none")

    def wait_started(self) -> None:
        assert until(lambda: all(self.stage.has(f"started-0-{rank}") for rank in (0, 1)), STARTS_WITHIN)

    def wait_ended(self) -> None:
        """Waits until the JobSet has a terminal state."""

        def ended() -> bool:
            return any((each.get("status") or {}).get("terminalState") for each in self.tasks.workloads())

        assert until(ended, STARTS_WITHIN)

    def suspend(self, suspended: bool) -> None:
        (name,) = self.made.names()
        patch = json.dumps({"spec": {"suspend": suspended}})
        place = ("-n", self.tasks.runs.namespace)
        self.tasks.runs.cluster.kubectl("patch", f"jobset/{name}", *place, "--type=merge", "-p", patch)

    def check(self, run: DagRun, state: str) -> None:
        """Checks that the task has ended as its only run."""
        assert run.task_state("train") == state, run.explained()
        assert len(at_most(1, self.made.names())) == 1
        if state == "success":
            assert run.xcom("train") == {"attempt": 0}
        else:
            assert "ValueError: the data is damaged" in str(run.error).splitlines()[0], run.explained()
        self.tasks.runs.wait_nothing_left()


@pytest.fixture
def trained(
    tasks: Tasks, tmp_path: Path, write_dag: WriteDag, monkeypatch: pytest.MonkeyPatch, stepset_home: Path
) -> Iterator[Trained]:
    if tasks.runs.cluster.choice is None:
        pytest.skip("ranks and test share a directory: only on the cluster of `make cluster`")
    (tmp_path / "stage").mkdir()
    with created(tasks.runs.cluster, tasks.runs.namespace, tmp_path / "jobsets") as made:
        yield Trained(tasks, Stage(tmp_path / "stage"), made, write_dag, monkeypatch)


CHANGES = pytest.mark.parametrize("change", ["script", "job file", "code", "template"])
ENDS = pytest.mark.parametrize("end", ["success", "failed"])


def executed_again(path: Path, *, clear: bool) -> DagRun:
    """Executes the task of the last DAG run again, in a process that parses the DAG file to execute this task."""
    set_state(path, "failed")  # as the scheduler does when the worker no longer reports; a running task is not cleared
    with _airflow_parsing_context_manager(dag_id=path.parent.name, task_id="train"):
        return run_again(path, last_run(path), clear=clear)


@CHANGES
@ENDS
def test_a_deferred_task_ends_as_its_run_although_its_files_have_changed(
    trained: Trained, run_dag: RunDag, change: str, end: str
) -> None:
    path = trained.written(change, deferrable=True)
    steps: list[Callable[[], Any]] = [trained.wait_started, lambda: trained.change(change, path)]
    if end == "failed":
        steps.append(lambda: trained.stage.say("fail"))
    with meanwhile(*steps, lambda: trained.stage.say("end")):
        run = run_dag(path)
    trained.check(run, end)


@CHANGES
@pytest.mark.parametrize("state", ["running", "success", "failed", "suspended"])
def test_the_next_worker_of_a_killed_worker_follows_the_run_although_its_files_have_changed(
    trained: Trained, start_worker: StartWorker, change: str, state: str
) -> None:
    path = trained.written(change)
    killed_while_running(trained, start_worker, path)
    trained.change(change, path)
    steps: list[Callable[[], Any]] = [lambda: trained.stage.say("end")]
    if state == "failed":
        trained.stage.say("fail")
    if state in ("success", "failed"):
        steps.pop()()
        trained.wait_ended()
    elif state == "suspended":
        trained.suspend(True)
        assert until(lambda: not trained.tasks.runs.pods())
        steps.append(lambda: trained.suspend(False))
    with meanwhile(*steps):
        run = executed_again(path, clear=False)
    trained.check(run, "failed" if state == "failed" else "success")


@CHANGES
def test_a_cleared_task_ends_with_its_run_if_the_run_has_succeeded_and_no_try_could_record_the_end(
    trained: Trained, start_worker: StartWorker, change: str
) -> None:
    path = trained.written(change)
    killed_while_running(trained, start_worker, path)
    trained.stage.say("end")
    trained.wait_ended()
    trained.change(change, path)
    run = executed_again(path, clear=True)
    assert [line for line in run.lines if line.startswith("this try ends with run train-")], run.explained()
    trained.check(run, "success")


def test_a_cleared_task_whose_job_cannot_be_read_leaves_no_run_that_no_task_follows(
    trained: Trained, start_worker: StartWorker
) -> None:
    path = trained.written("script")
    killed_while_running(trained, start_worker, path)
    trained.change("script", path)
    run = executed_again(path, clear=True)
    assert run.task_state("train") == "failed"
    assert str(run.error).startswith("script: no such file"), run.explained()
    at_most(1, trained.made.names())
    trained.tasks.runs.wait_nothing_left()


def killed_while_running(trained: Trained, start_worker: StartWorker, path: Path) -> None:
    """Runs the DAG file in a worker, and kills the worker when all ranks have started."""
    with start_worker(path) as worker:
        trained.wait_started()
        assert until(lambda: recorded(path), STARTS_WITHIN)
        worker.kill()
        worker.wait(STARTS_WITHIN)


def recorded(path: Path) -> bool:
    """Whether the worker has stored the uid of its run. Without it, the worker was killed while it created the run."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ti = last_run(path).tasks["train"]
    query = select(TaskStateStoreModel.value).where(
        TaskStateStoreModel.key == "stepset_run", TaskStateStoreModel.run_id == ti.run_id
    )
    with create_session() as session:
        value = session.scalar(query)
    return bool(value and json.loads(value)["uid"])
