"""Creates the LaunchPlan of a TrainingJob: one module per framework. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

from dataclasses import replace

from stepset.frameworks import deepspeed, jax, mlx, mpi, plain, torch, torchtune, xgboost
from stepset.frameworks.common import uses_agent
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
    """Returns the plan of a job; raises BadInputError if the framework does not support the job."""
    plan = _planned(job)
    return plan if uses_agent(job) else replace(plan, notes=(*plan.notes, _without_agent(job)))


def _without_agent(job: TrainingJob) -> str:
    why = (
        "as the job requests"
        if job.agent is False
        else f"because {job.command[0] if job.command else ''!r} is not Python"
    )
    return (
        f"agent: off, {why}: the run reports no result, no progress and no cause of a failure, and its pods do not wait"
        " for each other; set agent: true if the image has python3"
    )


def _planned(job: TrainingJob) -> LaunchPlan:
    if isinstance(job.framework, MLX):
        return mpi.mpi_plan(job, MPI()) if job.framework.backend == "mpi" else mlx.plan(job)
    return _PLANNERS[job.framework.kind](job)
