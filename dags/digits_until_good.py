"""Retrain until the model is good: a loop (Airflow 3.4) whose iterations continue with the last one's weights.

    prepare -> train, again and again -> good_enough -> report

Each iteration trains for some epochs. `good_enough` ends the loop when the accuracy suffices, and fails after the last
iteration if it does not. Data and checkpoints are under the Airflow Variable `digits_home`, by default
`$AIRFLOW_HOME/digits`. Airflow 3.3 has no loops: there this file defines no DAG.
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
    """The directory for all files of this DAG."""
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "digits"
    return Path(Variable.get("digits_home", default=str(default)))


def good_enough(*, loop, params) -> Any:
    """Ends the loop when the accuracy of this iteration suffices."""
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
    """The DAG."""

    @task
    def prepare() -> str:
        """Writes the data and returns its directory."""
        from digits.model import write_digits

        write_digits(home() / "digits.npz")
        return str(home())

    @task_group
    def attempts(directory: str) -> None:
        """One iteration; each is a run of its own, with its own page, retries and checkpoints."""
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
    prepared >> loop  # Airflow 3.4.0 does not derive this from the argument of a loop

    @task
    def report(results: list[dict[str, Any]]) -> str:
        """Returns how often the model was trained; outside of the loop, the output of `train` has all iterations."""
        steps = ", ".join(f"{result['accuracy']:.1%}" for result in results)
        return f"{len(results)} iterations: {steps}"

    report(loop.children["attempts.train"].output)


until_good = digits_until_good() if hasattr(airflow.sdk, "LoopDecision") else None

if __name__ == "__main__":
    until_good.test()
