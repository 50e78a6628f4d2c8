"""The fields that Kubeflow Trainer's controller adds to a run, which the trainjob target therefore omits.

If the controller would add anything that differs from the plan - another port or Service name, an elastic world, a
variable that the job overrides - it is configured to add nothing, and the manifests contain the plan's own values.

Source: kubeflow/trainer v2.3.0 pkg/runtime/framework/plugins/{torch,jax,xgboost,mpi}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.frameworks.mpi import HOSTFILE
from stepset.frameworks.torch import nproc_per_node
from stepset.plan.model import NODE, PodGroup
from stepset.plan.values import Text
from stepset.spec.job import TrainingJob
from stepset.spec.options import JAX, MLX, MPI, DeepSpeed, Torch, XGBoost
from stepset.spec.quantity import ceil_quantity
from stepset.targets.names import COMPLETION_INDEX, PodNames
from stepset.targets.pods.env import container_env
from stepset.targets.pods.shell import refers_to
from stepset.targets.pods.ssh import SECRET_VOLUME
from stepset.targets.request import RenderRequest

Env = dict[str, dict[str, Any]]
"""Variable -> its fields in a container's `env`, without the name."""

_PORT = "29500"
_NODES = frozenset({NODE})
_RANK = {"valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}}


@dataclass(frozen=True)
class Injection:
    """The fields that the controller adds."""

    policy: Mapping[str, Any]  # `mlPolicy` of the TrainingRuntime
    env: frozenset[str] = field(default_factory=frozenset)  # variables of the training container
    volumes: frozenset[str] = field(default_factory=frozenset)  # volumes that it mounts, with the objects behind them
    port: bool = False  # whether it opens the rendezvous port
    num_proc_per_node: int | None = None  # `numProcPerNode` of the TrainJob
    counts: frozenset[str] = field(default_factory=frozenset)  # groups whose number of pods it sets
    spreads_env: bool = False  # whether it gives the TrainJob's variables to other containers, too


def injection(request: RenderRequest) -> Injection:
    """Returns what the controller adds to this run; only the number of pods if the rest would differ from the plan."""
    trainer = trainer_group(request)
    nothing = Injection({}, counts=frozenset({trainer.name}))
    wanted = _wanted(request)
    if wanted is None:
        return nothing
    found, expected = wanted
    entries = [entry for entry in trainer.env if entry.name in expected]
    names = PodNames(request.plan, request.run, request.subdomain)
    ours = {row.pop("name"): row for row in container_env(entries, names, COMPLETION_INDEX, None)}
    late = [e for e in trainer.env if isinstance(e.value, Text) and refers_to(e.value, expected)]
    if ours != expected or late:
        return nothing
    return found


def trainer_group(request: RenderRequest) -> PodGroup:
    """The group that the TrainJob's `trainer` describes: the one that must succeed for the run to succeed."""
    return request.plan.group(request.plan.success.group)


def _wanted(request: RenderRequest) -> tuple[Injection, Env] | None:
    """(what the controller would add, its variables), or None if no policy fits."""
    framework = request.job.framework
    if isinstance(framework, Torch):
        return None if framework.launcher == "none" or framework.elastic else _torch(request)
    if isinstance(framework, DeepSpeed) and framework.launcher == "torchrun":
        return _torch(request)
    if isinstance(framework, JAX):
        env: Env = {
            "JAX_NUM_PROCESSES": {"value": str(request.plan.world.num_nodes)},
            "JAX_PROCESS_ID": _RANK,
            "JAX_COORDINATOR_ADDRESS": {"value": f"{_master(request)}:{_PORT}"},
        }
        return Injection({"jax": {}}, frozenset(env), port=True, counts=_NODES), env
    if isinstance(framework, XGBoost):
        gpus = _gpus(request)
        if len(gpus) > 1:
            return None
        workers = request.plan.world.num_nodes * max(1, *gpus)
        env = {
            "DMLC_TRACKER_URI": {"value": _master(request)},
            "DMLC_TRACKER_PORT": {"value": _PORT},
            "DMLC_TASK_ID": _RANK,
            "DMLC_NUM_WORKER": {"value": str(workers)},
        }
        return Injection({"xgboost": {}}, frozenset(env), port=True, counts=_NODES), env
    return _mpi(request)


def _torch(request: RenderRequest) -> tuple[Injection, Env] | None:
    """Returns what the policy `torch` adds; the TrainJob has a number of processes unless torchrun counts GPUs."""
    world = request.plan.world
    by_torchrun = request.job.procs_per_node == "auto" and nproc_per_node(request.job)[0] == "auto"
    if by_torchrun and 0 in _gpus(request):
        return None
    number = None if by_torchrun else world.procs_per_node
    env: Env = {
        "PET_NNODES": {"value": str(world.num_nodes)},
        "PET_NPROC_PER_NODE": {"value": "auto" if number is None else str(number)},
        "PET_NODE_RANK": _RANK,
        "PET_MASTER_ADDR": {"value": _master(request)},
        "PET_MASTER_PORT": {"value": _PORT},
    }
    return Injection({"torch": {}}, frozenset(env), port=True, num_proc_per_node=number, counts=_NODES), env


def _master(request: RenderRequest) -> str:
    """Returns the name that the controller gives node 0, regardless of the Service's name."""
    return f"{request.run}-{NODE}-0-0.{request.run}"


def _gpus(request: RenderRequest) -> set[int]:
    """Returns the numbers of GPUs that the controller may find: the amounts of the resources with "gpu" in their name.

    The controller uses an arbitrary one of them, whatever its unit is; requests take precedence over limits
    (pkg/runtime/runtime.go:289-315).
    """
    resources = request.plan.group(NODE).resources
    for amounts in (resources.requests, resources.limits):
        if found := {ceil_quantity(amount) for name, amount in amounts.items() if "gpu" in name.lower()}:
            return found
    return {0}


def _mpi(request: RenderRequest) -> tuple[Injection, Env] | None:
    plan = request.plan
    options = _open_mpi(request.job)
    # If the plan has only a launcher, the controller would list a node that does not exist.
    if options is None or all(group.name != NODE for group in plan.groups):
        return None
    slots = plan.world.procs_per_node
    policy = {
        "numProcPerNode": slots,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": options.ssh_auth_mount_path,
        "runLauncherAsNode": options.run_launcher_as_node,
    }
    env = {
        "OMPI_MCA_orte_default_hostfile": {"value": "/etc/mpi/hostfile"},
        "OMPI_MCA_orte_keep_fqdn_hostnames": {"value": "true"},
        "OMPI_MCA_orte_set_default_slots": {"value": str(slots)},
        "OMPI_MCA_plm_rsh_args": {"value": "-o ConnectionAttempts=10"},
    }
    found = Injection(
        {"mpi": policy},
        frozenset(env),
        volumes=frozenset({HOSTFILE, SECRET_VOLUME}),
        num_proc_per_node=slots,
        counts=_NODES,
        spreads_env=options.run_launcher_as_node,
    )
    return found, env


def _open_mpi(job: TrainingJob) -> MPI | None:
    """Returns the job's options of Open MPI; None if Open MPI does not start the ranks."""
    framework = job.framework
    if isinstance(framework, MPI):
        return framework if framework.implementation == "openmpi" else None
    by_mpirun = isinstance(framework, DeepSpeed) and framework.launcher == "mpirun"
    return MPI() if by_mpirun or (isinstance(framework, MLX) and framework.backend == "mpi") else None
