"""Plans LightGBM jobs. Each process is a machine of LightGBM's network, in which all machines connect to each other.

Source: LightGBM 4.7.0 docs/Parallel-Learning-Guide.rst and src/network/linkers_socket.cpp. LightGBM reads no variables.
The script must pass the machines to LightGBM as parameters (docs/frameworks/lightgbm.md).
"""

from __future__ import annotations

from stepset.errors import BadInputError
from stepset.frameworks.common import (
    check_host_lines,
    count_processes,
    device_notes,
    node_group,
    program,
    single_group_plan,
)
from stepset.frameworks.framework_spec import FrameworkSpec, Import, Listeners
from stepset.plan.model import NODE, EnvEntry, LaunchPlan, PlanFile
from stepset.plan.values import MountedFile, NodeRank, PodHost, PortNumber, ProcessRank, text
from stepset.spec.job import TrainingJob

_FIRST_PORT = 12400  # the default of LightGBM's parameter `local_listen_port`
_LAST_PORT = 65535
_MACHINES = "lightgbm-machines"


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a LightGBM job.

    Each process has its own port. LightGBM listens at all addresses, and recognises itself in the list of the machines
    by the addresses of its network interfaces and by its port. In a local run, only the ports differ.
    """
    procs = count_processes(job, without_accelerator=1)
    size = job.num_nodes * procs
    check_host_lines(job, procs)
    if size > _LAST_PORT - _FIRST_PORT + 1:
        raise BadInputError(
            f"num_nodes: each of the {size} processes needs a port of its own from {_FIRST_PORT} to {_LAST_PORT}; lower"
            " it"
        )
    ports = {f"machine-{rank}": _FIRST_PORT + rank for rank in range(size)}
    lines = tuple(text(PodHost(NODE, rank // procs), " ", PortNumber(f"machine-{rank}")) for rank in range(size))
    rank = text(NodeRank()) if procs == 1 else text(ProcessRank())
    env = (
        EnvEntry("LIGHTGBM_RANK", rank, "lightgbm: rank of the process"),
        EnvEntry("LIGHTGBM_MACHINES", text(MountedFile(_MACHINES)), "lightgbm: a host and a port for each rank"),
    )
    machines = PlanFile(_MACHINES, "/etc/lightgbm/machines.txt", lines, (NODE,))
    node = node_group(job, env, program(job), processes=procs, ports=tuple(ports), world_size=size)
    return single_group_plan(job, node, procs, ports=ports, files=(machines,), notes=device_notes(job))


SPEC = FrameworkSpec(
    name="LightGBM",
    plan=plan,
    listeners=Listeners("", "the machines"),
    world_variables=(r"LIGHTGBM_(RANK|MACHINES)$",),
    programs={},
    packages=("lightgbm",),
    imports=(Import("lightgbm", "the script must pass the machines to LightGBM as parameters"),),
    pages=("lightgbm",),
)
