"""Retrain when new data arrives. This DAG has no time schedule. An event of an asset starts it.

    digits_data (an asset) -> train -> digits_retrained (an asset, whose event contains accuracy and checkpoint)

Each training starts from the weights of the previous training. The latest event of the asset digits_retrained contains
the path of the checkpoint with these weights. A task that writes new digits must have the asset digits_data in its
`outlets`. The task can put the path of the digits into the event of this asset with `extra={"path": ...}`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pendulum
from airflow.sdk import Asset, Variable, dag, task

from stepset_airflow import DistributedTrainOperator

DATA, MODEL = Asset("digits_data"), Asset("digits_retrained")


def home() -> Path:
    """Returns the directory for all files of this DAG."""
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "digits"
    return Path(Variable.get("digits_home", default=str(default)))


@dag(
    schedule=[DATA],
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    tags=["stepset", "example"],
    doc_md=__doc__,
)
def digits_on_new_data() -> None:
    """Defines the DAG."""

    @task(multiple_outputs=True)
    def newest(triggering_asset_events=None, run_id=None) -> dict[str, str]:
        """Returns the path of the data, and the checkpoint directory of this run.

        The newest event that contains a path determines the path of the data. If no event contains a path, the function
        writes scikit-learn's digits to a file and returns the path of this file.
        """
        from digits.model import write_digits

        events = [event for events in triggering_asset_events.values() for event in events]
        paths = [event.extra["path"] for event in events if event.extra and "path" in event.extra]
        data = paths[-1] if paths else str(home() / "digits.npz")
        if not paths:
            write_digits(Path(data))
        return {"data": data, "checkpoint_dir": str(home() / "new_data" / run_id.replace(":", "_"))}

    found = newest()

    DistributedTrainOperator(
        task_id="train",
        framework="torch",
        num_nodes=2,
        procs_per_node=1,
        code="digits",
        script="train.py",
        args=["--data", found["data"], "--epochs", "3"],
        checkpoint_dir=found["checkpoint_dir"],
        backend="local",
        outlets=[MODEL],
        warm_start=MODEL,
    )


retrain = digits_on_new_data()

if __name__ == "__main__":
    retrain.test()
