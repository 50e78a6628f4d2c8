"""`make demo`: retrains the digits classifier of dags/digits_retrain.py twice through Airflow, on this machine.

Airflow and the DAG write all files to demo-out/. If this directory exists, it is deleted first. The first run starts
from random weights. The second run starts from the model that the first run has promoted. The exit code is 1 if a run
fails or its model is not good enough.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo_report import Retraining, picture, table

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "demo-out"
DAGS = ROOT / "dags"
GOOD_ENOUGH = 0.95


def main() -> int:
    """Runs the demo and returns the exit code."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    configure_airflow()
    print("A PyTorch DDP training on 2 nodes x 2 processes as one task of an Airflow DAG, run twice.")
    print(f"Setting up a new Airflow in {OUT.relative_to(ROOT)}/airflow ...", flush=True)
    if not migrate(OUT / "airflow" / "db-migrate.log"):
        return 1

    announce_tasks()
    retrainings = []
    for number, start in ((1, "from random weights"), (2, "from the model the first run promoted")):
        print(f"\nRun {number}: {start}", flush=True)
        retraining = retrain(number)
        if retraining is None:
            print(f"demo: run {number} failed; its log is above", file=sys.stderr)
            return 1
        retrainings.append(retraining)

    print()
    table(retrainings)
    print(f"\nLoss and accuracy: {picture(retrainings, OUT / 'retraining.png', GOOD_ENOUGH)}")
    print(f"State and logs of both trainings: STEPSET_HOME={OUT / 'stepset'} stepset list")
    return verdict(retrainings)


def verdict(retrainings: list[Retraining]) -> int:
    """Returns the exit code, which is 0 if the model of every run is good enough, and 1 otherwise."""
    poor = [r for r in retrainings if r.accuracy <= GOOD_ENOUGH]
    for r in poor:
        print(
            f"demo: the accuracy of run {r.number} is {r.accuracy:.2%}; expected more than {GOOD_ENOUGH:.0%}",
            file=sys.stderr,
        )
    return 1 if poor else 0


def configure_airflow() -> None:
    """Configures a new Airflow for this process. This function must be called before Airflow is imported."""
    # The user may have another Airflow. Its settings, such as its database, must not apply to this Airflow.
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "STEPSET_"))]:
        del os.environ[name]
    os.environ.update(
        AIRFLOW_HOME=str(OUT / "airflow"),
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__LOGGING__LOG_FORMAT="%(message)s",
        AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR",
        AIRFLOW__LOGGING__NAMESPACE_LEVELS="airflow.task.operators.stepset_airflow=INFO",
        STEPSET_HOME=str(OUT / "stepset"),
        PYTHONWARNINGS="ignore",
    )


def migrate(log: Path) -> bool:
    """Creates Airflow's database and returns whether this succeeded. Writes the output to the file `log`."""
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        done = subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], stdout=file, stderr=file)
    if done.returncode:
        print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
        print(f"demo: could not create Airflow's database; see {log}", file=sys.stderr)
    return done.returncode == 0


def retrain(number: int) -> Retraining | None:
    """Runs the DAG once with `dag.test()` and returns its results, or None if the run has failed."""
    sys.path.insert(0, str(DAGS))
    from digits_retrain import retrain as dag

    run = dag.test()
    tasks = {ti.task_id: ti for ti in run.get_task_instances()}
    if run.state != "success":
        return None
    trained: dict[str, Any] = tasks["train"].xcom_pull(task_ids="train")
    scores: dict[str, Any] = tasks["evaluate"].xcom_pull(task_ids="evaluate")
    return Retraining(
        number=number,
        history=trained["history"],
        start=trained["start"],
        before=trained["before"]["accuracy"],
        world_size=trained["world_size"],
        accuracy=scores["candidate"]["accuracy"],
        loss=scores["candidate"]["loss"],
        promoted=tasks["promote"].state == "success",
        seconds={name: tasks[name].duration or 0.0 for name in ("prepare", "train", "evaluate", "promote")},
    )


def announce_tasks() -> None:
    """Prints the name of each task when Airflow starts it."""
    from airflow.listeners import hookimpl
    from airflow.sdk.listener import get_listener_manager

    class Announcer:
        @hookimpl
        def on_task_instance_running(self, previous_state: Any, task_instance: Any) -> None:
            print(f"task {task_instance.task_id}", flush=True)

    get_listener_manager().add_listener(Announcer())


if __name__ == "__main__":
    sys.exit(main())
