"""Any command, once in every pod, with no training environment (Trainer's plainml)."""

from __future__ import annotations

from stepset.frameworks.common import count_processes, node_group, program, single_group_plan
from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of a plain job: procs_per_node copies of the command in each pod, one unless it is a number."""
    procs = count_processes(job) if job.procs_per_node != "auto" else 1
    return single_group_plan(job, node_group(job, (), program(job), processes=procs, ports=()), procs, ports={})
