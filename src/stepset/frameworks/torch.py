"""PyTorch: torchrun with a fixed or an elastic world, or a script started without a launcher.

Static variables are those of Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/torch/torch.go:110-226), elastic
ones those of training-operator v1 (pkg/controller.v1/pytorch/elastic.go, release-1.9).
"""

from __future__ import annotations

from stepset.errors import BadInputError
from stepset.frameworks.common import MASTER, MASTER_HOST, count_processes, node_group, program, single_group_plan
from stepset.plan.model import EnvEntry, LaunchPlan, RankWrap
from stepset.plan.values import FirstNode, LocalRank, NodeRank, PortNumber, ProcessRank, Text, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.options import Elastic, Torch
from stepset.spec.resources import accelerator, cpu_count

# Reserved in every torch job, as in Kubeflow Trainer (pkg/constants/constants.go:300).
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")


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
    """One torchrun in every pod; also DeepSpeed's default.

    Args:
        elastic: set for a world whose size may change.
        both_layers: also set the variables that a worker reads, for scripts written for the Training-operator.
        launcher_layer: set PET_*.
    """
    if not launcher_layer and job.command is None:
        raise BadInputError(
            "framework.env_layer: 'worker' leaves torchrun without the other nodes' addresses, so that every node would"
            " train by itself; leave env_layer out, or set launcher: none"
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
        command = (text("torchrun"), *rank[1:])
        wrap = RankWrap(texts(["torchrun", "--no-python"]), (rank[0], text("-u"), *rank[1:]))
    bounds = elastic.bounds(job.num_nodes) if elastic else None
    node = node_group(
        job, env, command, reserved=RESERVED, wrap=wrap, launcher_restarts=bool(elastic and elastic.max_restarts)
    )
    return single_group_plan(job, node, known, elastic=bounds)


def nproc_per_node(job: TrainingJob) -> tuple[str, int | None]:
    """torchrun's argument, and the number if it is known beforehand.

    On GPUs torchrun counts devices itself ("auto"), as in Kubeflow Trainer. It cannot count MIG slices, TPUs and the
    like, so for those the number is given.
    """
    name, devices = accelerator(job.node_resources())
    procs = job.procs_per_node
    if procs in ("auto", "gpu") and devices and "gpu" in name.lower():
        return procs, devices
    number = count_processes(job)
    return str(number), number


def static_env(job: TrainingJob, nproc: str, *, master: bool = True) -> tuple[EnvEntry, ...]:
    """PET_* for a fixed world: static rendezvous, in which rank = pod index x processes per node + local rank."""
    rule = "torchrun, static rendezvous: "
    entries = [
        EnvEntry("PET_NNODES", text(job.num_nodes), rule + "num_nodes"),
        EnvEntry("PET_NPROC_PER_NODE", text(nproc), rule + _nproc_rule(job)),
        EnvEntry("PET_NODE_RANK", text(NodeRank()), rule + "index of the pod"),
    ]
    if master:
        entries += [
            EnvEntry("PET_MASTER_ADDR", text(MASTER_HOST), rule + "node 0"),
            EnvEntry("PET_MASTER_PORT", text(PortNumber(MASTER)), rule + "network.port"),
        ]
    return tuple(entries)


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
        EnvEntry("PET_RDZV_ID", text(elastic.rdzv_id or job.name), rule + "rdzv_id, else the job's name"),
        EnvEntry(
            "PET_RDZV_CONF",
            text("is_host=", FirstNode(), conf),
            rule + "node 0 hosts the store; then rdzv_conf",
            pod_value=text(conf.removeprefix(",")) if conf else None,
        ),
        EnvEntry("PET_MAX_RESTARTS", text(elastic.max_restarts), rule + "elastic.max_restarts"),
        # With a shared store rank 0 publishes its address in the first round only, and a node that comes later waits
        # for it in vain (torch 2.15, dynamic_rendezvous.py, next_rendezvous; executed).
        EnvEntry("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", text(1), rule + "a node that returns finds the others"),
    )


def worker_env(job: TrainingJob, procs: int, *, beside_torchrun: bool = False) -> tuple[EnvEntry, ...]:
    """MASTER_ADDR, RANK and similar variables, counting processes.

    Args:
        procs: processes per node.
        beside_torchrun: the pod's own command reads them, not each rank: no LOCAL_*, and RANK only if the pod is one
            process, because otherwise it would differ from the rank that torchrun sets.
    """
    rule = "worker layer beside torchrun's: " if beside_torchrun else "worker layer, no launcher sets it: "
    entries = [
        EnvEntry("MASTER_ADDR", text(MASTER_HOST), rule + "node 0"),
        EnvEntry("MASTER_PORT", text(PortNumber(MASTER)), rule + "network.port"),
        EnvEntry("WORLD_SIZE", text(job.num_nodes * procs), rule + "num_nodes x processes per node"),
    ]
    if procs == 1:
        entries.append(EnvEntry("RANK", text(NodeRank()), rule + "one process a pod: index of the pod"))
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
    return single_group_plan(job, node, procs)


def _nproc_rule(job: TrainingJob) -> str:
    if isinstance(job.procs_per_node, int):
        return "procs_per_node"
    name, devices = accelerator(job.node_resources())
    if job.procs_per_node == "cpu" or not devices:
        return f"{cpu_count(job.node_resources())} CPUs, rounded up"
    return f"{devices} x {name}"
