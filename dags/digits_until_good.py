"""Retrain until the accuracy of the model is high enough. The DAG needs Airflow 3.4 or later.

    prepare -> train, once for each iteration -> good_enough -> report

Each iteration trains for some epochs and starts with the weights of the previous iteration. `good_enough` ends the loop
when the accuracy is high enough. If the accuracy is still too low after the last iteration, `good_enough` fails. The
Airflow Variable `digits_home` contains the directory of the data and checkpoints. The default is
`$AIRFLOW_HOME/digits`. Airflow 3.3 has no loops. In Airflow 3.3 this file defines no DAG.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import airflow.sdk
import pendulum
from airflow.sdk import Param, Variable, dag, task, task_group

from stepset_airflow import DistributedTrainOperator


def home() -> Path:
    """Returns the directory for all files of this DAG."""
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "digits"
    return Path(Variable.get("digits_home", default=str(default)))


def good_enough(*, loop, params) -> Any:
    """Ends the loop when the accuracy of this iteration is high enough."""
    accuracy = loop.result["accuracy"]
    return airflow.sdk.LoopDecision(accuracy >= params["accuracy"], reason=f"accuracy {accuracy:.1%}")


@dag(
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={
        "epochs": Param(2, type="integer", minimum=1),
        "accuracy": Param(0.95, type="number", minimum=0, maximum=1),
    },
    tags=["stepset", "example"],
    doc_md=__doc__,
)
def digits_until_good() -> None:
    """Defines the DAG."""

    @task
    def prepare() -> str:
        """Writes the data, and returns the directory of the data."""
        from digits.model import write_digits

        write_digits(home() / "digits.npz")
        return str(home())

    @task_group
    def attempts(directory: str) -> None:
        """Defines one iteration. Each iteration is a separate run with its own page, retries and checkpoints."""
        DistributedTrainOperator(
            task_id="train",
            framework="torch",
            num_nodes=1,
            procs_per_node=2,
            code="digits",
            script="train.py",
            args=[
                *("--data", f"{directory}/digits.npz"),
                *("--epochs", "{{ params.epochs }}"),
                *("--start-from", "{{ loop.previous.checkpoint if loop.previous else '' }}"),
            ],
            checkpoint_dir=f"{directory}/until_good/{{{{ run_id | replace(':', '_') }}}}/{{{{ loop.index }}}}",
            backend="local",
            retries=1,
        )

    prepared = prepare()
    loop = attempts.partial(directory=prepared).loop(max_iterations=6, until=good_enough)
    prepared >> loop  # Airflow 3.4.0 does not derive this dependency from the argument of the loop

    @task
    def report(results: list[dict[str, Any]]) -> str:
        """Returns the accuracies of all iterations.

        Outside of the loop, the output of `train` is the list of the results of all iterations.
        """
        steps = ", ".join(f"{result['accuracy']:.1%}" for result in results)
        return f"{len(results)} iterations: {steps}"

    report(loop.children["attempts.train"].output)


until_good = digits_until_good() if hasattr(airflow.sdk, "LoopDecision") else None

if __name__ == "__main__":
    until_good.test()
