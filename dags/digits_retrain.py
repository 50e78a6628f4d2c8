"""Retrain a digit classifier every week, and promote the new model only if it is better than the last promoted model.

    prepare -> train (2 nodes x 2 processes, PyTorch DDP) -> evaluate -> promote

Each run starts from the last promoted model (a warm start). The Airflow Variable `digits_home` contains the directory
of the data, checkpoints and models. The default is `$AIRFLOW_HOME/digits`. The training code is in digits/.
"""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import Asset, Param, Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from stepset_airflow import DistributedTrainOperator

MODEL = Asset("digits_model")


def home() -> Path:
    """Returns the directory for all files of this DAG."""
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "digits"
    return Path(Variable.get("digits_home", default=str(default)))


@dag(
    schedule="@weekly",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params={"epochs": Param(8, type="integer", minimum=1)},
    tags=["stepset", "example"],
    doc_md=__doc__,
)
def digits_retrain() -> None:
    """Defines the DAG."""

    # Airflow passes the arguments run_id, asset_state_store and outlet_events to the functions.
    @task(inlets=[MODEL], multiple_outputs=True)
    def prepare(run_id=None, asset_state_store=None) -> dict[str, str]:
        """Writes the data, and reads the path of the last promoted checkpoint from the asset's state."""
        from digits.model import write_digits

        data = home() / "digits.npz"
        count = write_digits(data)
        last_good = str(asset_state_store[MODEL].get("last_good_checkpoint", ""))
        print(
            f"{count['train']} digits to train on, {count['test']} to test with; last good model: {last_good or None}"
        )
        return {
            "data": str(data),
            "last_good": last_good if Path(last_good).is_file() else "",
            "checkpoint_dir": str(home() / "runs" / re.sub(r"[^\w.-]", "_", run_id)),
        }

    prepared = prepare()

    train = DistributedTrainOperator(
        task_id="train",
        framework="torch",
        num_nodes=2,
        procs_per_node=2,
        code="digits",
        script="train.py",
        args=[
            *("--data", prepared["data"]),
            *("--epochs", "{{ params.epochs }}"),
            *("--start-from", prepared["last_good"]),
        ],
        checkpoint_dir=prepared["checkpoint_dir"],
        backend="local",
        log_ranks="all",
        multiple_outputs=True,  # train.output["checkpoint"] is the value of `checkpoint` in rank 0's result
        retries=1,  # a retry resumes from the checkpoint of the failed try
        retry_delay=timedelta(seconds=10),
    )

    @task
    def evaluate(data: str, candidate: str, last_good: str) -> dict[str, Any]:
        """Scores the new model and the last promoted model on the same digits. Neither was trained on these digits."""
        from digits.model import load_model, read_digits, score

        test = read_digits(Path(data), "test")
        return {
            "candidate": score(load_model(Path(candidate)), *test),
            "last_good": score(load_model(Path(last_good)), *test) if last_good else None,
        }

    @task(outlets=[MODEL])
    def promote(scores: dict[str, Any], candidate: str, run_id=None, asset_state_store=None, outlet_events=None) -> str:
        """Promotes the new model if it is better than the last promoted model.

        Otherwise the task is skipped. Then no asset event is created, and Airflow does not start the DAGs whose
        schedule is the asset.
        """
        new, old = scores["candidate"], scores["last_good"]
        if old and (new["accuracy"], -new["loss"]) <= (old["accuracy"], -old["loss"]):
            raise AirflowSkipException(f"not promoted: {new} does not beat {old}")
        model = home() / "models" / f"{Path(candidate).parent.name}.pt"
        model.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(candidate, model)
        asset_state_store[MODEL].set("last_good_checkpoint", str(model))
        outlet_events[MODEL].extra = {**new, "checkpoint": str(model), "run_id": run_id}
        print(f"promoted: {new} beats {old}; {model}")
        return str(model)

    candidate = train.output["checkpoint"]
    promote(evaluate(prepared["data"], candidate, prepared["last_good"]), candidate)


retrain = digits_retrain()

if __name__ == "__main__":
    retrain.test()
