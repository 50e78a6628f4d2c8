"""A DAG run in a separate process, whose ranks wait for signals of a test, and the paths of its page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.airflow.page.server import STEPSET_HOME, Server
from tests.airflow.workers import StartWorker, Worker
from tests.waiting import until

TASK = "train"
RANKS = 4
ERROR = "ValueError: the gradient of fc2.weight is not a number: a learning rate of 0.8 is too high"

_DAG = """
    from airflow.sdk import DAG
    from stepset_airflow import DistributedTrainOperator

    with DAG({dag!r}, schedule=None) as dag:
        DistributedTrainOperator(
            task_id={task!r},
            backend="local",
            framework={{"kind": "torch", "launcher": "none"}},
            num_nodes=2,
            procs_per_node=2,
            script="train.py",
            args=[{signals!r}],
            retries=1,
            retry_delay=0.1,
        )

    if __name__ == "__main__":
        print("ended as", dag.test().state)
"""
_SCRIPT = """
    import json, math, os, sys, time

    signals, rank = sys.argv[1], int(os.environ["RANK"])
    step = 0
    while not os.path.exists(os.path.join(signals, "end")):
        time.sleep(0.05)
        step += 1
        if rank == 0:
            left = 0.985**step
            unsteady = 0.12 * abs(math.sin(12.9898 * step)) * (0.2 + left)
            metrics = {"loss": 0.08 + 2.2 * left + unsteady, "accuracy": 0.98 - 0.87 * left - unsteady / 3}
            report = {"step": 10 * step, "progress": min(0.95, step / 600), "metrics": metrics}
            print(json.dumps({"stepset": report}), flush=True)
        if step % 10 == 1:
            print(f"epoch {step // 10 + 1}: {1437 * (rank + 1)} samples", flush=True)
        if rank == 3 and step > 60 and os.path.exists(os.path.join(signals, "fail")):
            raise ValueError("the gradient of fc2.weight is not a number: a learning rate of 0.8 is too high")
"""


@dataclass
class Training:
    """A DAG run with one training.

    Args:
        process: the process that runs the DAG.
        dag_id: the DAG's id.
        signals: the directory of the files that signal to the ranks what to do.
    """

    process: Worker
    dag_id: str
    signals: Path

    @property
    def over(self) -> bool:
        """Whether its process has ended."""
        return self.process.poll() is not None

    @property
    def run_id(self) -> str:
        """The id of the DAG run; empty before it exists."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            return str(session.scalar(select(DagRun.run_id).where(DagRun.dag_id == self.dag_id)) or "")

    @property
    def data(self) -> str:
        """The path of its page's data."""
        return f"/stepset/api/dags/{self.dag_id}/dagRuns/{quote(self.run_id)}/taskInstances/{TASK}"

    @property
    def page(self) -> str:
        """The path of its page outside Airflow's UI."""
        where = {"dag_id": self.dag_id, "run_id": self.run_id, "task_id": TASK, "map_index": "{MAP_INDEX}"}
        return f"/stepset/training?{urlencode(where)}"

    @property
    def tab(self) -> str:
        """The path of the tab "Training" at its task instance, in Airflow's UI."""
        return f"/dags/{self.dag_id}/runs/{quote(self.run_id, safe='')}/tasks/{TASK}/plugin/stepset-training"

    def phase(self, server: Server) -> str:
        """The phase that its page shows; empty before there is one."""
        answer = server.get(self.data, "ada")
        return str((answer.json()["training"] or {}).get("phase", "")) if answer.is_success else ""

    def signal(self, name: str) -> None:
        """Signals to the ranks to `fail` (this try and the next) or to `end`."""
        (self.signals / name).touch()


@contextmanager
def started_training(start_worker: StartWorker, folder: Path, signals: Path) -> Iterator[Training]:
    """Starts a training in a DAG that is named after its folder, and ends it after the block.

    Args:
        start_worker: the fixture of this name.
        folder: the directory to create for the DAG file.
        signals: an empty directory.
    """
    folder.mkdir()
    (folder / "train.py").write_text(textwrap.dedent(_SCRIPT))
    path = folder / "dag_file.py"
    path.write_text(textwrap.dedent(_DAG).format(dag=folder.name, task=TASK, signals=str(signals)))
    with start_worker(path, {"STEPSET_HOME": str(STEPSET_HOME)}) as run:
        started = Training(run, folder.name, signals)
        try:
            yield started
        finally:
            started.signal("end")
            run.terminate()
            until(lambda: started.over, 30)
