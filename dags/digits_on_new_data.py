"""Retrain when new data has come: scheduled by an asset, not by the clock.

    digits_data (an asset) -> train -> digits_retrained (an asset, whose event carries the accuracy and the checkpoint)

Each training begins with the weights of the last one: the checkpoint that the asset's latest event names.
Whoever writes digits updates the asset; its event may say where they lie: `extra={"path": ...}`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import Asset, Variable, dag, task

from stepset_airflow import DistributedTrainOperator

DATA, MODEL = Asset("digits_data"), Asset("digits_retrained")


def home() -> Path:
    """Where everything this DAG keeps lies."""
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "digits"
    return Path(Variable.get("digits_home", default=str(default)))


@dag(
    schedule=[DATA],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["stepset", "example"],
    doc_md=__doc__,
)
def digits_on_new_data() -> None:
    """The DAG."""

    @task(multiple_outputs=True)
    def newest(triggering_asset_events=None, run_id=None) -> dict[str, str]:
        """Where the data lies of which the newest event tells; digits of scikit-learn where it tells nothing."""
        from digits.model import write_digits

        events = [event for events in triggering_asset_events.values() for event in events]
        told = [event.extra["path"] for event in events if event.extra and "path" in event.extra]
        data = told[-1] if told else str(home() / "digits.npz")
        if not told:
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
