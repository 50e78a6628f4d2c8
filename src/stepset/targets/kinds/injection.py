"""Determines the fields that Kubeflow Trainer's controller adds to a run. The trainjob target omits these fields.

For some jobs, the controller would add values that differ from the plan. For example, the job may change the port or
override a variable. The manifests of such a job contain the values of the plan, and configure the controller to add
nothing.

Source: kubeflow/trainer v2.3.0 pkg/runtime/framework/plugins/{torch,jax,xgboost,mpi}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepset.frameworks.kinds.mpi import HOSTFILE
from stepset.frameworks.kinds.torch import nproc_per_node
from stepset.plan.model import NODE, PodGroup
from stepset.plan.values import Text
from stepset.spec.options import JAX, DeepSpeed, Torch, XGBoost
from stepset.spec.quantity import ceil_quantity
from stepset.targets.names import COMPLETION_INDEX, PodNames
from stepset.targets.pods.env import container_env
from stepset.targets.pods.shell import refers_to
from stepset.targets.pods.ssh import SECRET_VOLUME
from stepset.targets.request import RenderRequest

Env = dict[str, dict[str, Any]]
"""A mapping from the names of variables to the rows in a container's `env`. The rows have no field `name`."""

_PORT = "29500"
_NODES = frozenset({NODE})
_RANK = {"valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}}


@dataclass(frozen=True)
class Injection:
    """The fields that the controller adds.

    Args:
        policy: the `mlPolicy` of the TrainingRuntime. The policy causes the controller to add the fields.
        env: the names of the variables that the controller sets in the training container.
        volumes: the names of the volumes that the controller mounts. The controller also creates the ConfigMaps and
            Secrets of these volumes.
        port: whether the controller adds the rendezvous port to the training container.
        num_proc_per_node: the value of the TrainJob's field `numProcPerNode`. None if the TrainJob does not have this
            field.
        counts: the names of groups. The controller sets the numbers of pods of these groups.
        spreads_env: whether the controller also adds the variables of the TrainJob to other containers.
    """

    policy: Mapping[str, Any]
    env: frozenset[str] = field(default_factory=frozenset)
    volumes: frozenset[str] = field(default_factory=frozenset)
    port: bool = False
    num_proc_per_node: int | None = None
    counts: frozenset[str] = field(default_factory=frozenset)
    spreads_env: bool = False


def injection(request: RenderRequest) -> Injection:
    """Returns the fields that the controller adds to a run.

    If the controller would add values that differ from the plan, the result contains only the number of pods.
    """
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
    """Returns the group of pods that the field `trainer` of the TrainJob describes.

    The run succeeds if this group succeeds.
    """
    return request.plan.group(request.plan.success.group)


def _wanted(request: RenderRequest) -> tuple[Injection, Env] | None:
    """Returns the fields and the variables that the controller adds if the policy of the job's framework is used.

    Returns None if Kubeflow Trainer has no policy for the framework.
    """
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
    """Returns the fields and the variables that the controller adds with the policy `torch`.

    The TrainJob contains the number of processes per node, unless torchrun determines this number from the GPUs.
    """
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
    """Returns the host name that the controller uses for node 0. `network.subdomain` does not change this name."""
    return f"{request.run}-{NODE}-0-0.{request.run}"


def _gpus(request: RenderRequest) -> set[int]:
    """Returns all numbers that the controller could use as the number of GPUs of a node.

    The controller reads the quantity of one resource whose name contains "gpu". If there are several such resources,
    the choice is random. If there are requests, the controller ignores limits (pkg/runtime/runtime.go:289-315).
    """
    resources = request.plan.group(NODE).resources
    for amounts in (resources.requests, resources.limits):
        if found := {ceil_quantity(amount) for name, amount in amounts.items() if "gpu" in name.lower()}:
            return found
    return {0}


def _mpi(request: RenderRequest) -> tuple[Injection, Env] | None:
    plan = request.plan
    options = request.job.framework.mpirun
    if options is None or options.implementation != "openmpi":
        return None
    # If the launcher is the only pod, the controller would add a host name of a node that does not exist.
    if all(group.name != NODE for group in plan.groups):
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
