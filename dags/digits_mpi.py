"""Train with an MPI program, whose launcher starts the ranks on both nodes.

The operator is the same for all frameworks.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag

from stepset_airflow import DistributedTrainOperator


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), tags=["stepset", "example"], doc_md=__doc__)
def digits_mpi() -> None:
    """Defines the DAG."""
    DistributedTrainOperator(
        task_id="train",
        job="../examples/mpi.yaml",  # defines the whole job, but a field given here would replace the file's field
        backend="local",
        log_ranks="all",
    )


mpi = digits_mpi()

if __name__ == "__main__":
    mpi.test()
