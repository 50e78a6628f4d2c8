"""Any command, once in every pod, with no training environment (Trainer's plainml)."""

from __future__ import annotations

from stepset.frameworks.common import count_processes, node_group, program, single_group_plan
from stepset.plan.model import LaunchPlan
from stepset.plan.values import texts
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of a plain job; procs_per_node copies of the command in each pod, one unless it says a number."""
    procs = count_processes(job) if job.procs_per_node != "auto" else 1
    command = texts(job.command) if job.command is not None else program(job)
    return single_group_plan(job, node_group(job, (), command, processes=procs, ports=()), procs, ports={})
