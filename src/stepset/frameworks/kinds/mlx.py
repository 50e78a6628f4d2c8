"""Plans MLX jobs with the backend `ring`, in which the ranks form a ring of TCP connections.

Each rank reads its position in the ring from the variables MLX_RANK and MLX_HOSTFILE. stepset does not use
`mlx.launch`, because `mlx.launch` does not report exit codes and does not accept host names for a ring (mlx 0.32.4,
tested). `stepset.frameworks.kinds.mpi` plans MLX jobs with the backend `mpi`.
"""

from __future__ import annotations

from stepset.frameworks.common import (
    check_host_lines,
    count_processes,
    device_notes,
    node_group,
    program,
    single_group_plan,
)
from stepset.frameworks.framework_spec import NO_LISTENERS, FrameworkSpec, Import
from stepset.plan.model import NODE, EnvEntry, LaunchPlan, PlanFile
from stepset.plan.values import MountedFile, NodeRank, PodHost, PortNumber, ProcessRank, Text, text
from stepset.spec.job import TrainingJob

# The port of the first rank of a node. Each further rank uses the next port. mlx.launch uses the same ports.
RING_PORT = 32323
_HOSTFILE = "mlx-hostfile"


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of an MLX job whose backend is `ring`."""
    procs = count_processes(job, without_accelerator=1)
    size = job.num_nodes * procs
    check_host_lines(job, procs)
    if size == 1:
        # A single rank must run without a host file. With only one entry, MLX fails after 31 s (mlx 0.32.4, tested).
        node = node_group(job, (), program(job), ports=(), reserved=_RESERVED)
        return single_group_plan(job, node, 1, ports={}, notes=device_notes(job))
    ports = {f"ring-{local}": RING_PORT + local for local in range(procs)}
    rank = text(NodeRank()) if procs == 1 else text(ProcessRank())
    env = (
        EnvEntry("MLX_RANK", rank, "mlx ring: rank of the process"),
        EnvEntry("MLX_HOSTFILE", text(MountedFile(_HOSTFILE)), "mlx ring: one address for each rank, in rank order"),
    )
    hosts = PlanFile(_HOSTFILE, "/etc/mlx/hostfile.json", _ring(job.num_nodes, procs), (NODE,))
    node = node_group(job, env, program(job), processes=procs, ports=tuple(ports), world_size=size, reserved=_RESERVED)
    return single_group_plan(job, node, procs, ports=ports, files=(hosts,), notes=device_notes(job))


_RESERVED = ("MLX_RANK", "MLX_HOSTFILE")


def _ring(nodes: int, procs: int) -> tuple[Text, ...]:
    last = nodes * procs - 1
    rows = (
        text(
            '["',
            PodHost(NODE, node),
            ":",
            PortNumber(f"ring-{local}"),
            '"]',
            "" if node * procs + local == last else ",",
        )
        for node in range(nodes)
        for local in range(procs)
    )
    return (text("["), *rows, text("]"))


SPEC = FrameworkSpec(
    name="MLX",
    plan=plan,
    listeners=NO_LISTENERS,  # the ranks listen at the addresses of the host file
    world_variables=(r"(MLX_RANK|MLX_HOSTFILE)$",),
    programs={},
    packages=("mlx",),
    imports=(Import("mlx", "the script must call mx.distributed.init()"),),
    pages=("mlx",),
)
