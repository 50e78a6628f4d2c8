"""Plans DeepSpeed jobs. torchrun or the `deepspeed` launcher starts the ranks.

By default, torchrun starts the ranks, because torchrun sets the variables that `deepspeed.init_distributed` reads. The
`deepspeed` launcher runs once in each pod with `--no_ssh` (deepspeed/launcher/runner.py, edaa722). If mpirun starts the
ranks, `stepset.frameworks.kinds.mpi` plans the job.
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
from stepset.frameworks.framework_spec import FrameworkSpec, Import, Listeners
from stepset.frameworks.kinds.torch import TORCHRUN_STORE, torchrun_plan
from stepset.frameworks.node_launch import start_of
from stepset.plan.model import NODE, LaunchPlan, PlanFile
from stepset.plan.values import MountedFile, PodHost, PortNumber, Text, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.options import DeepSpeed

_HOSTFILE = "deepspeed-hostfile"


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a DeepSpeed job whose ranks are not started by mpirun."""
    options = job.framework
    assert isinstance(options, DeepSpeed)
    return torchrun_plan(job) if options.launcher == "torchrun" else _own_launcher(job)


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
    # Without --no_local_rank, the launcher would insert the argument --local_rank before the agent. With
    # --no_local_rank, the program reads the local rank from LOCAL_RANK.
    of_any_program = (*launcher, *texts(["--no_python", "--no_local_rank"]))
    size = job.num_nodes * procs
    script = texts(["--module", job.module]) if job.module is not None else program(job)[1:]
    start = start_of(job, of_any_program, (*launcher, *script))
    node = node_group(
        job,
        (),
        start.command,
        command_rule=start.rule,
        wrap=start.wrap,
        world_size=size,
        counts_ranks=start.counts,
    )
    return single_group_plan(job, node, procs, files=(hosts,), notes=device_notes(job))


SPEC = FrameworkSpec(
    name="DeepSpeed",
    plan=plan,
    listeners=Listeners(TORCHRUN_STORE, ""),
    world_variables=(),  # those of torch
    programs={"deepspeed": "install deepspeed"},
    packages=("deepspeed",),
    imports=(
        Import("deepspeed", "the script must call deepspeed.init_distributed() or deepspeed.initialize()", "first"),
    ),
    pages=("deepspeed",),
)
