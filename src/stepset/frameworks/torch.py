"""PyTorch: torchrun with a fixed or an elastic world, or a script started without a launcher.

Static variables are those of Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/torch/torch.go:110-226), elastic
ones those of training-operator v1 (pkg/controller.v1/pytorch/elastic.go, release-1.9).
"""

from __future__ import annotations

from stepset.errors import BadInputError
from stepset.frameworks.common import (
    MASTER,
    MASTER_HOST,
    count_processes,
    counted_devices,
    device_notes,
    node_group,
    program,
    single_group_plan,
)
from stepset.plan.model import EnvEntry, LaunchPlan, RankWrap
from stepset.plan.values import FirstNode, LocalRank, NodeRank, PortNumber, ProcessRank, RendezvousId, Text, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.options import Elastic, Torch
from stepset.spec.resources import cpu_count

# Reserved in every torch job, as in Kubeflow Trainer (pkg/constants/constants.go:300).
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")

_STATIC = "torchrun, static rendezvous: "
_STATIC_RANK = EnvEntry("PET_NODE_RANK", text(NodeRank()), _STATIC + "index of the pod")
_STATIC_MASTER = (
    EnvEntry("PET_MASTER_ADDR", text(MASTER_HOST), _STATIC + "node 0"),
    EnvEntry("PET_MASTER_PORT", text(PortNumber(MASTER)), _STATIC + "network.port"),
)
_TORCHRUN = text("torchrun")
_WRAP = texts(["torchrun", "--no-python"])
_UNBUFFERED = text("-u")


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of a torch job."""
    options = job.framework
    assert isinstance(options, Torch)
    if options.launcher == "none":
        return _without_launcher(job, options)
    return torchrun_plan(
        job,
        options.elastic,
        both_layers=options.env_layer in ("both", "worker"),
        launcher_layer=options.env_layer != "worker",
    )


def torchrun_plan(
    job: TrainingJob, elastic: Elastic | None = None, *, both_layers: bool = False, launcher_layer: bool = True
) -> LaunchPlan:
    """Returns the plan of one torchrun per pod; also for DeepSpeed.

    Args:
        elastic: set for a world whose size may change.
        both_layers: also set the variables that a worker reads, for scripts written for the Training-operator.
        launcher_layer: set PET_*.
    """
    if not launcher_layer and job.command is None:
        raise BadInputError(
            "framework.env_layer: 'worker' leaves torchrun without the other nodes' addresses, so that every node would"
            " train alone; leave env_layer out, or set launcher: none"
        )
    nproc, known = nproc_per_node(job)
    env: tuple[EnvEntry, ...] = ()
    if launcher_layer:
        env = _elastic_env(job, elastic, nproc) if elastic else static_env(job, nproc)
    if both_layers:
        if known is None or elastic:
            raise BadInputError(
                "framework.env_layer: the worker layer counts processes, and their number is not known beforehand;"
                " give procs_per_node as a number, without elastic"
            )
        env = (*env, *worker_env(job, known, beside_torchrun=True))
    if job.command is not None:
        command, wrap = texts(job.command), None
    else:
        rank = program(job)
        command = (_TORCHRUN, *rank[1:])
        wrap = RankWrap(_WRAP, (rank[0], _UNBUFFERED, *rank[1:]))
    bounds = elastic.bounds(job.num_nodes) if elastic else None
    node = node_group(
        job,
        env,
        command,
        reserved=RESERVED,
        wrap=wrap,
        launcher_restarts=elastic is not None,  # also with max_restarts 0: torchrun restarts workers if a node joins
    )
    return single_group_plan(job, node, known, elastic=bounds, notes=device_notes(job))


def nproc_per_node(job: TrainingJob) -> tuple[str, int | None]:
    """Returns torchrun's argument, and the number of processes if it is known beforehand.

    On GPUs torchrun counts devices itself ("auto"), as in Kubeflow Trainer. It cannot count MIG devices, TPUs and the
    like, and several shared GPUs may be one device, so for those the number is given.
    """
    procs = job.procs_per_node
    if procs in ("auto", "gpu"):
        devices = counted_devices(job)
        if devices.counted_by_torchrun:
            return procs, devices.count
    number = count_processes(job)
    return str(number), number


def static_env(job: TrainingJob, nproc: str, *, master: bool = True) -> tuple[EnvEntry, ...]:
    """PET_* for a fixed world: static rendezvous, in which rank = pod index x processes per node + local rank."""
    entries = (
        EnvEntry("PET_NNODES", text(job.num_nodes), _STATIC + "num_nodes"),
        EnvEntry("PET_NPROC_PER_NODE", text(nproc), _STATIC + _nproc_rule(job)),
        _STATIC_RANK,
    )
    return (*entries, *_STATIC_MASTER) if master else entries


def _elastic_env(job: TrainingJob, elastic: Elastic, nproc: str) -> tuple[EnvEntry, ...]:
    rule = "torchrun, elastic c10d rendezvous: "
    low, high = elastic.bounds(job.num_nodes)
    # Without is_host torchrun guesses the host by resolving its own name, and fails where DNS is late
    # (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, _matches_machine_hostname).
    conf = "".join(f",{key}={value}" for key, value in elastic.rdzv_conf.items())
    return (
        EnvEntry("PET_NNODES", text(f"{low}:{high}"), rule + "min_nodes:max_nodes"),
        EnvEntry("PET_NPROC_PER_NODE", text(nproc), rule + _nproc_rule(job)),
        EnvEntry("PET_RDZV_BACKEND", text("c10d"), rule + "the store is on node 0"),
        EnvEntry("PET_RDZV_ENDPOINT", text(MASTER_HOST, ":", PortNumber(MASTER)), rule + "node 0, network.port"),
        EnvEntry("PET_RDZV_ID", text(elastic.rdzv_id or RendezvousId()), rule + "rdzv_id, else random for each run"),
        EnvEntry(
            "PET_RDZV_CONF",
            text("is_host=", FirstNode(), conf),
            rule + "is_host is 1 on node 0, which hosts the store; then the settings of rdzv_conf",
            pod_value=text(conf.removeprefix(",")) if conf else None,
        ),
        EnvEntry("PET_MAX_RESTARTS", text(elastic.max_restarts), rule + "elastic.max_restarts"),
        # With a shared store, rank 0 publishes its address in the first round only, and a node that joins later waits
        # for the address forever (torch 2.15, dynamic_rendezvous.py, next_rendezvous; tested).
        EnvEntry("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", text(1), rule + "a node that returns finds the others"),
    )


def worker_env(job: TrainingJob, procs: int, *, beside_torchrun: bool = False) -> tuple[EnvEntry, ...]:
    """MASTER_ADDR, RANK and similar variables; ranks and sizes count processes, not pods.

    Args:
        procs: processes per node.
        beside_torchrun: whether torchrun starts the ranks. If so, only the pod's command reads these variables, because
            torchrun sets its own in each rank: LOCAL_* are left out, and with several processes per pod also RANK.
    """
    rule = "worker layer, beside torchrun: " if beside_torchrun else "worker layer, without a launcher: "
    entries = [
        EnvEntry("MASTER_ADDR", text(MASTER_HOST), rule + "node 0"),
        EnvEntry("MASTER_PORT", text(PortNumber(MASTER)), rule + "network.port"),
        EnvEntry("WORLD_SIZE", text(job.num_nodes * procs), rule + "num_nodes x processes per node"),
    ]
    if procs == 1:
        entries.append(EnvEntry("RANK", text(NodeRank()), rule + "one process per pod: index of the pod"))
    elif not beside_torchrun:
        entries.append(EnvEntry("RANK", text(ProcessRank()), rule + "rank of the process"))
    if not beside_torchrun:
        local: Text = text(0) if procs == 1 else text(LocalRank())
        entries += [
            EnvEntry("LOCAL_RANK", local, rule + "index within the pod"),
            EnvEntry("LOCAL_WORLD_SIZE", text(procs), rule + "processes per node"),
        ]
    return tuple(entries)


def _without_launcher(job: TrainingJob, options: Torch) -> LaunchPlan:
    procs = count_processes(job)
    env = worker_env(job, procs)
    if options.env_layer == "both":
        env = (*static_env(job, str(procs)), *env)
    node = node_group(job, env, program(job), processes=procs, world_size=job.num_nodes * procs)
    return single_group_plan(job, node, procs, notes=device_notes(job))


def _nproc_rule(job: TrainingJob) -> str:
    if isinstance(job.procs_per_node, int):
        return "procs_per_node"
    if job.procs_per_node != "cpu" and (rule := counted_devices(job).rule):
        return rule
    cpus = cpu_count(job.node_resources())
    return f"{cpus} {'CPU' if cpus == 1 else 'CPUs'}, rounded up"
