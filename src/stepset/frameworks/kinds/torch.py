"""Plans PyTorch jobs. Either torchrun or the agent starts the ranks.

If the number of nodes is fixed, the variables are those of Kubeflow Trainer v2.3.0
(pkg/runtime/framework/plugins/torch/torch.go:110-226). If the world is elastic, the variables are those of
training-operator v1 (pkg/controller.v1/pytorch/elastic.go, release-1.9).
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
from stepset.frameworks.framework_spec import FrameworkSpec, Import, Listeners
from stepset.frameworks.node_launch import start_of
from stepset.plan.model import EnvEntry, LaunchPlan
from stepset.plan.values import FirstNode, LocalRank, NodeRank, PortNumber, ProcessRank, RendezvousId, Text, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.options import Elastic, Torch
from stepset.spec.resources import cpu_count

# As in Kubeflow Trainer, these variables are reserved in every torch job (pkg/constants/constants.go:300).
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")

TORCHRUN_STORE = "the store of node 0"
"""What listens on the port `master` if torchrun starts the ranks."""
_STATIC = "torchrun, static rendezvous: "
_STATIC_RANK = EnvEntry("PET_NODE_RANK", text(NodeRank()), _STATIC + "index of the pod")
_STATIC_MASTER = (
    EnvEntry("PET_MASTER_ADDR", text(MASTER_HOST), _STATIC + "node 0"),
    EnvEntry("PET_MASTER_PORT", text(PortNumber(MASTER)), _STATIC + "network.port"),
)
_TORCHRUN = text("torchrun")
_WRAP = texts(["torchrun", "--no-python"])


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a torch job."""
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
    """Returns a plan in which every pod runs torchrun. DeepSpeed jobs also use this function.

    Args:
        elastic: the options of an elastic world. None if the number of nodes is fixed.
        both_layers: whether to also set the variables that a worker reads. Scripts that were written for the Training
            Operator may need these variables.
        launcher_layer: whether to set the variables that torchrun reads (PET_*).
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
    bounds = elastic.bounds(job.num_nodes) if elastic else None
    start = start_of(job, _WRAP, (_TORCHRUN, *program(job)[1:]))
    size = job.num_nodes * known if known is not None and not elastic and not _overrides(job) else None
    node = node_group(
        job,
        env,
        start.command,
        command_rule=start.rule,
        reserved=RESERVED,
        wrap=start.wrap,
        world_size=size if nproc.isdigit() or start.counts else None,
        counts_ranks=start.counts and size is not None,
        # In an elastic world, torchrun restarts the workers when a node joins, even if max_restarts is 0.
        launcher_restarts=elastic is not None,
    )
    return single_group_plan(job, node, known, elastic=bounds, notes=device_notes(job))


def _overrides(job: TrainingJob) -> bool:
    """Returns whether the job replaces a variable from which torchrun reads the number of ranks."""
    return any(name in job.env for name in ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_STANDALONE"))


def nproc_per_node(job: TrainingJob) -> tuple[str, int | None]:
    """Returns the value of torchrun's option `--nproc-per-node`, and the number of processes.

    If the node has GPUs, the value is `auto` or `gpu`, as in Kubeflow Trainer. torchrun then counts the GPUs and starts
    one process for each GPU. torchrun cannot count MIG devices, TPUs and shared GPUs. For such devices, the value is a
    number.
    """
    procs = job.procs_per_node
    if procs in ("auto", "gpu"):
        devices = counted_devices(job)
        if devices.counted_by_torchrun:
            return procs, devices.count
    number = count_processes(job)
    return str(number), number


def static_env(job: TrainingJob, nproc: str, *, master: bool = True) -> tuple[EnvEntry, ...]:
    """Returns the PET_* variables for a fixed number of nodes. torchrun then uses the static rendezvous.

    In a static rendezvous, the rank of a process is `index of the pod * processes per node + local rank`.

    Args:
        master: whether to include the address and the port of node 0.
    """
    entries = (
        EnvEntry("PET_NNODES", text(job.num_nodes), _STATIC + "num_nodes"),
        EnvEntry("PET_NPROC_PER_NODE", text(nproc), _STATIC + _nproc_rule(job)),
        _STATIC_RANK,
    )
    return (*entries, *_STATIC_MASTER) if master else entries


def _elastic_env(job: TrainingJob, elastic: Elastic, nproc: str) -> tuple[EnvEntry, ...]:
    rule = "torchrun, elastic c10d rendezvous: "
    low, high = elastic.bounds(job.num_nodes)
    # is_host states whether the store runs in this pod. Without is_host, torchrun resolves the host name of the pod to
    # determine this. That fails if the host name does not resolve yet
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
        # With a shared store, rank 0 publishes its address only in the first round. A node that joins later would wait
        # for the address forever (torch 2.15, dynamic_rendezvous.py, next_rendezvous, tested).
        EnvEntry("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", text(1), rule + "a node that joins again finds the other nodes"),
    )


def worker_env(job: TrainingJob, procs: int, *, beside_torchrun: bool = False) -> tuple[EnvEntry, ...]:
    """Returns the variables that a worker reads, such as MASTER_ADDR and RANK.

    RANK and WORLD_SIZE refer to processes, not to pods.

    Args:
        procs: the number of processes per node.
        beside_torchrun: whether torchrun starts the ranks. If True, torchrun sets its own values of these variables in
            the ranks. Only the command of the pod reads the returned values. Therefore the result does not contain
            LOCAL_RANK and LOCAL_WORLD_SIZE. If a pod has several processes, the result also does not contain RANK.
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


_PROCESS_GROUP = "the script must call torch.distributed.init_process_group()"
_TRAINER = "the Trainer needs num_nodes, and devices equal to procs_per_node"
_FABRIC = "Fabric needs num_nodes, and devices equal to procs_per_node"
SPEC = FrameworkSpec(
    name="PyTorch (including FSDP, Lightning, Accelerate and the Hugging Face Trainer)",
    plan=plan,
    listeners=Listeners(TORCHRUN_STORE, "the store of an elastic world's ranks"),
    world_variables=(
        r"(PET|TORCHELASTIC)_",
        r"((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|NODE_RANK|MASTER_ADDR|MASTER_PORT)$",
    ),
    programs={"torchrun": "install torch, or set framework to plain for a program without torch"},
    packages=("torch", "accelerate", "lightning"),
    imports=(
        Import("lightning.fabric", _FABRIC),
        Import("lightning_fabric", _FABRIC),
        Import("lightning", _TRAINER),
        Import("pytorch_lightning", _TRAINER),
        Import("accelerate", "the script must create an Accelerator"),
        Import("torch.distributed", _PROCESS_GROUP),
        Import("transformers", "the Trainer joins the process group by itself", "last"),
        Import("torch", _PROCESS_GROUP, "last"),
    ),
    pages=("torch", "torch-elastic", "fsdp", "accelerate", "lightning", "transformers"),
)
