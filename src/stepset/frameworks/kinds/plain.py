"""Plans `plain` jobs. Every pod of such a job runs an arbitrary command, as with Kubeflow Trainer's `plainml`.

stepset sets no variables of a training framework.
"""

from __future__ import annotations

from stepset.frameworks.common import count_processes, device_notes, node_group, program, single_group_plan
from stepset.frameworks.framework_spec import NO_LISTENERS, FrameworkSpec
from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a plain job.

    Each pod runs `procs_per_node` copies of the command. If `procs_per_node` is `auto`, each pod runs one copy.
    """
    one = job.procs_per_node == "auto"
    procs, notes = (1, ()) if one else (count_processes(job), device_notes(job))
    node = node_group(job, (), program(job), processes=procs, ports=())
    return single_group_plan(job, node, procs, ports={}, notes=notes)


SPEC = FrameworkSpec(
    name="",
    plan=plan,
    listeners=NO_LISTENERS,
    world_variables=(),
    programs={},
    packages=(),
    imports=(),
    pages=("plain",),
)
