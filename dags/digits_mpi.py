"""One training as an MPI program: a launcher starts the ranks on both nodes; all frameworks use the same operator."""

from __future__ import annotations

import pendulum
from airflow.sdk import dag

from stepset_airflow import DistributedTrainOperator


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), tags=["stepset", "example"], doc_md=__doc__)
def digits_mpi() -> None:
    """The DAG."""
    DistributedTrainOperator(
        task_id="train",
        job="../examples/mpi.yaml",  # defines the whole job; fields given here would replace its own
        backend="local",
        log_ranks="all",
    )


mpi = digits_mpi()

if __name__ == "__main__":
    mpi.test()
