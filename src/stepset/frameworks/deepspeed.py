"""Plans DeepSpeed jobs. torchrun, the `deepspeed` launcher or mpirun starts the ranks.

By default, torchrun starts the ranks, because torchrun sets the variables that `deepspeed.init_distributed` reads. The
`deepspeed` launcher runs once in each pod with `--no_ssh` (deepspeed/launcher/runner.py, edaa722).
"""

from __future__ import annotations

from stepset.frameworks.common import (
    MASTER,
    MASTER_HOST,
    check_host_lines,
    count_processes,
    device_notes,
    node_group,
    program,
    single_group_plan,
)
from stepset.frameworks.mpi import mpi_plan
from stepset.frameworks.torch import torchrun_plan
from stepset.plan.model import NODE, LaunchPlan, PlanFile, RankWrap
from stepset.plan.values import MountedFile, PodHost, PortNumber, Text, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI, DeepSpeed

_HOSTFILE = "deepspeed-hostfile"


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a DeepSpeed job."""
    options = job.framework
    assert isinstance(options, DeepSpeed)
    if options.launcher == "torchrun":
        return torchrun_plan(job)
    if options.launcher == "mpirun":
        return mpi_plan(job, MPI())
    return _own_launcher(job)


def _own_launcher(job: TrainingJob) -> LaunchPlan:
    procs = count_processes(job)
    check_host_lines(job)
    launcher: tuple[Text, ...] = (
        text("deepspeed"),
        text("--hostfile"), text(MountedFile(_HOSTFILE)),
        text("--no_ssh"),
        text("--node_rank"), text("$(STEPSET_NODE_RANK)"),
        text("--master_addr"), text(MASTER_HOST),
        text("--master_port"), text(PortNumber(MASTER)),
    )  # fmt: skip
    lines = tuple(text(PodHost(NODE, k), " slots=", procs) for k in range(job.num_nodes))
    hosts = PlanFile(_HOSTFILE, "/etc/deepspeed/hostfile", lines, (NODE,))
    if job.command is not None:
        command, wrap = texts(job.command), None
    else:
        rank = program(job)
        script = texts(["--module", job.module]) if job.module is not None else rank[1:]
        command = (*launcher, *script)
        # Without --no_local_rank, the launcher would insert the argument --local_rank before the agent. With
        # --no_local_rank, the program reads the local rank from LOCAL_RANK.
        wrap = RankWrap((*launcher, *texts(["--no_python", "--no_local_rank"])), (rank[0], text("-u"), *rank[1:]))
    node = node_group(job, (), command, wrap=wrap, world_size=job.num_nodes * procs)
    return single_group_plan(job, node, procs, files=(hosts,), notes=device_notes(job))
