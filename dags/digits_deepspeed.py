"""Train with DeepSpeed (ZeRO), whose launcher runs once on each node.

The operator is the same for all frameworks.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag

from stepset_airflow import DistributedTrainOperator


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), tags=["stepset", "example"], doc_md=__doc__)
def digits_deepspeed() -> None:
    """Defines the DAG."""
    DistributedTrainOperator(
        task_id="train",
        job="../examples/deepspeed.yaml",
        procs_per_node=1,  # replaces the value in the job file
        backend="local",
        log_ranks="all",
    )


deepspeed = digits_deepspeed()

if __name__ == "__main__":
    deepspeed.test()
