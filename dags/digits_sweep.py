"""Train with several learning rates, and select the best result. The training is mapped over its arguments.

    prepare -> train, once for each learning rate -> pick

The Airflow Variable `digits_home` contains the directory of the data and checkpoints. The default is
`$AIRFLOW_HOME/digits`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import Param, Variable, dag, task

from stepset_airflow import DistributedTrainOperator, TrainingRetryPolicy


def home() -> Path:
    """Returns the directory for all files of this DAG."""
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "digits"
    return Path(Variable.get("digits_home", default=str(default)))


@dag(
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={
        "epochs": Param(3, type="integer", minimum=1),
        "rates": Param([0.005, 0.05, 0.2], type="array", items={"type": "number"}, minItems=1),
    },
    tags=["stepset", "example"],
    doc_md=__doc__,
)
def digits_sweep() -> None:
    """Defines the DAG."""

    @task
    def prepare() -> str:
        """Writes the data, and returns the directory of the data."""
        from digits.model import write_digits

        write_digits(home() / "digits.npz")
        return str(home())

    @task
    def arguments(directory: str, params=None) -> list[list[str]]:
        """Returns the arguments of each training."""
        data = ["--data", f"{directory}/digits.npz", "--epochs", str(params["epochs"])]
        return [[*data, "--lr", str(rate)] for rate in params["rates"]]

    prepared = prepare()

    train = DistributedTrainOperator.partial(
        task_id="train",
        framework="torch",
        num_nodes=1,
        procs_per_node=2,
        code="digits",
        script="train.py",
        checkpoint_dir="{{ ti.xcom_pull('prepare') }}/sweep/{{ run_id | replace(':', '_') }}/{{ ti.map_index }}",
        backend="local",
        retries=2,
        retry_policy=TrainingRetryPolicy(),  # does not retry errors of the training code
        max_active_tis_per_dagrun=1,  # one training at a time on one machine; remove this limit on a cluster
    ).expand(args=arguments(prepared))

    @task
    def pick(trained: list[dict[str, Any]], params=None) -> dict[str, Any]:
        """Returns the result with the highest accuracy."""
        results = [{"lr": rate, **result} for rate, result in zip(params["rates"], trained, strict=True)]
        for result in results:
            print(f"learning rate {result['lr']}: accuracy {result['accuracy']:.3f}")
        return max(results, key=lambda result: result["accuracy"])

    pick(train.output)


sweep = digits_sweep()

if __name__ == "__main__":
    sweep.test()
