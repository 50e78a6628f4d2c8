"""Plans JAX jobs, which run one process per node. Node 0 runs the coordinator.

Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/jax/jax.go. The plan sets three variables. JAX reads only
JAX_COORDINATOR_ADDRESS. The script must read JAX_NUM_PROCESSES and JAX_PROCESS_ID, and pass their values to
`jax.distributed.initialize` as `num_processes` and `process_id` (docs/frameworks/jax.md).
"""

from __future__ import annotations

from stepset.frameworks.common import MASTER, MASTER_HOST, node_group, program, single_group_plan
from stepset.frameworks.framework_spec import FrameworkSpec, Import, Listeners
from stepset.plan.model import EnvEntry, LaunchPlan
from stepset.plan.values import NodeRank, PortNumber, text
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a JAX job."""
    env = (
        EnvEntry("JAX_NUM_PROCESSES", text(job.num_nodes), "jax: num_nodes, one process each"),
        EnvEntry("JAX_PROCESS_ID", text(NodeRank()), "jax: index of the pod"),
        EnvEntry("JAX_COORDINATOR_ADDRESS", text(MASTER_HOST, ":", PortNumber(MASTER)), "jax: node 0, network.port"),
    )
    notes = (
        (f"procs_per_node: jax runs one process per node, which uses all its devices; {job.procs_per_node} is ignored",)
        if isinstance(job.procs_per_node, int) and job.procs_per_node > 1
        else ()
    )
    return single_group_plan(job, node_group(job, env, program(job), world_size=job.num_nodes), 1, notes=notes)


SPEC = FrameworkSpec(
    name="JAX",
    plan=plan,
    listeners=Listeners("the coordinator", ""),
    world_variables=(r"JAX_(NUM_PROCESSES|PROCESS_ID|COORDINATOR_ADDRESS)$",),
    programs={},
    packages=("jax",),
    imports=(Import("jax", "the script must call jax.distributed.initialize()"),),
    pages=("jax",),
)
