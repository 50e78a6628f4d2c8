"""MLX: a TCP ring that every rank joins by MLX_RANK and MLX_HOSTFILE, or ranks started by mpirun.

`mlx.launch` is never used: it loses exit codes and its ring refuses host names (mlx 0.32.4, tested).
"""

from __future__ import annotations

from stepset.frameworks.common import count_processes, device_notes, node_group, program, single_group_plan
from stepset.plan.model import NODE, EnvEntry, LaunchPlan, PlanFile
from stepset.plan.values import MountedFile, NodeRank, PodHost, PortNumber, ProcessRank, Text, text
from stepset.spec.job import TrainingJob

RING_PORT = 32323  # base port of mlx.launch; each further rank of a node uses the next port
_HOSTFILE = "mlx-hostfile"


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of an MLX ring; backend `mpi` is planned by `stepset.frameworks.mpi`."""
    procs = count_processes(job, without_accelerator=1)
    size = job.num_nodes * procs
    if size == 1:
        # A single rank needs no ring: with a one-entry hostfile MLX hangs for 31 s and fails (mlx 0.32.4, tested).
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
