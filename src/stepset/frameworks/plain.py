"""Any command in every pod, with no training environment (Trainer's plainml)."""

from __future__ import annotations

from stepset.frameworks.common import count_processes, device_notes, node_group, program, single_group_plan
from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of a plain job: procs_per_node copies of the command in each pod; one copy for `auto`."""
    one = job.procs_per_node == "auto"
    procs, notes = (1, ()) if one else (count_processes(job), device_notes(job))
    node = node_group(job, (), program(job), processes=procs, ports=())
    return single_group_plan(job, node, procs, ports={}, notes=notes)
