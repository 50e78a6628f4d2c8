"""From TrainingJob to LaunchPlan: one file for each framework. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

from stepset.frameworks import deepspeed, jax, mlx, mpi, plain, torch, torchtune, xgboost
from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.options import MLX, MPI

_PLANNERS = {
    "torch": torch.plan,
    "torchtune": torchtune.plan,
    "deepspeed": deepspeed.plan,
    "mpi": mpi.plan,
    "jax": jax.plan,
    "xgboost": xgboost.plan,
    "plain": plain.plan,
}


def make_plan(job: TrainingJob) -> LaunchPlan:
    """Returns what every pod of this job gets, and why; BadInputError if the framework does not support the job."""
    if isinstance(job.framework, MLX):
        return mpi.mpi_plan(job, MPI()) if job.framework.backend == "mpi" else mlx.plan(job)
    return _PLANNERS[job.framework.kind](job)
