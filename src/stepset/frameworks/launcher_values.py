"""Checks whether a setting of a launcher, such as the number of nodes or an address, agrees with the job."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from stepset.frameworks.launcher_options import Meaning, Setting
from stepset.spec.devices import node_devices
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI, Elastic, NodeLaunched, Torch
from stepset.spec.template import node_env_from

_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "")
_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""A variable that disables the shared store of a c10d rendezvous.

With a shared store, rank 0 publishes its address only in the first round of the rendezvous (torch 2.15, tested).
"""
_OURS = re.compile(r"(?<!\$)\$\(((?:PET|STEPSET)_[A-Z_]+|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\)")
_STORES = ("c10d", "static")
"""The rendezvous backends of torchrun that run their store on node 0."""


@dataclass(frozen=True, slots=True)
class JobWorld:
    """The world of a job according to the plan.

    Args:
        nodes: the minimum and the maximum number of nodes.
        procs: the number of processes per node. None if the number is unknown.
        port: the value of `network.port`.
        hostfiles: the paths of the plan's host files.
        ssh: True if the command runs once, in the launcher pod, and starts the ranks on the nodes by ssh. False if
            every node runs the command.
        torchrun: whether stepset sets torchrun's variables.
        names: the names of the container's variables, except variables that only the cluster adds.
    """

    job: TrainingJob
    nodes: tuple[int, int]
    procs: int | None
    port: int
    hostfiles: tuple[str, ...]
    ssh: bool
    torchrun: bool
    names: frozenset[str]

    @property
    def several(self) -> bool:
        """Whether the world may have several nodes."""
        return self.nodes[1] > 1

    @property
    def elastic(self) -> Elastic | None:
        """The options of an elastic world. None if the number of nodes is fixed."""
        framework = self.job.framework
        return framework.elastic if isinstance(framework, Torch) else None


def fix(facts: JobWorld, kind: str) -> str:
    """Returns advice for the user about an option that contradicts the job."""
    if (facts.ssh and kind == "mpirun") or (facts.torchrun and kind in ("torchrun", "tune")):
        return "remove it, because stepset sets it"
    return f"give the program as script instead of a command with {kind}"


def problem_of(facts: JobWorld, kind: str, setting: Setting, given: dict[Meaning, Setting]) -> str | None:
    """Returns the problem with a setting and advice on how to fix it, or None if the setting agrees with the job.

    Args:
        kind: the `Launcher.kind` of the launcher.
        given: all settings of the launcher. The keys are the meanings of the settings.
    """
    problem = _CHECKS[setting.meaning](facts, kind, setting.value, given)
    unchecked = ", or set framework.launch: command" if isinstance(facts.job.framework, MPI) else ""
    return problem and problem + unchecked


def missing_reference(facts: JobWorld, kind: str, value: str) -> str | None:
    """Returns a problem if a value refers to a missing variable of stepset or of a PyTorchJob. Otherwise, returns None.

    If the container does not have the variable NAME, Kubernetes does not replace `$(NAME)`. References to variables
    with other names are not checked, because the cluster may add such variables.
    """
    if node_env_from(facts.job.pod_template):
        return None  # an object in `envFrom` may contain the variable
    missing = next((name for name in _OURS.findall(value) if name not in facts.names), None)
    return missing and f"refers to {missing}, which the pods of this job do not have; {fix(facts, kind)}"


def _number(value: str) -> int | None:
    """Converts a value to an integer. Returns None for a value that is not a number. One such value is `gpu`."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None


def _nodes(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    low, _, high = value.partition(":")
    bounds = (_number(low), _number(high or low))
    if None in bounds or bounds == facts.nodes:
        return None
    if facts.elastic:
        ours = "{}:{}".format(*facts.nodes)
        return f"contradicts framework.elastic, {ours} nodes; {fix(facts, kind)}, or change min_nodes and max_nodes"
    elastic = f"framework: {{kind: torch, elastic: {{min_nodes: {bounds[0]}, max_nodes: {bounds[1]}}}}}"
    remedy = elastic if bounds[0] != bounds[1] else f"num_nodes: {bounds[0]}"
    return f"contradicts num_nodes: {facts.job.num_nodes}; {fix(facts, kind)}, or set {remedy}"


def _procs(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    number = _number(value)
    if value in ("auto", "gpu") and kind in ("torchrun", "tune"):
        devices = node_devices(facts.job)
        number = devices.count if devices.counted_by_torchrun else None
    if number is None or facts.procs is None or number == facts.procs:
        return None
    return f"contradicts {_described_procs(facts)}; {_procs_remedy(facts, kind, value)}"


def _described_procs(facts: JobWorld) -> str:
    given = facts.job.procs_per_node
    if facts.job.framework.kind == "jax":
        return "the one process of each node of a jax job"
    if isinstance(given, int):
        return f"procs_per_node: {given}"
    why = "without an accelerator in resources_per_node" if _counts_nothing(facts) else "with these resources"
    return f"procs_per_node: {given}, which is {facts.procs} {why}"


def _counts_nothing(facts: JobWorld) -> bool:
    """Returns whether the job has `procs_per_node: auto` and no accelerators.

    If so, the number of processes in the launcher's option may be the number that the user wants.
    """
    return facts.job.procs_per_node == "auto" and not node_devices(facts.job).processes


def _procs_remedy(facts: JobWorld, kind: str, value: str) -> str:
    """Returns advice for a launcher option whose number of processes per node contradicts the job."""
    framework = facts.job.framework
    if framework.kind == "jax":
        return f"set framework: {'mpi' if kind in ('mpirun', 'horovodrun') else 'torch'}, or remove {kind}"
    if isinstance(framework, Torch) and framework.launcher == "none":
        return f"leave framework.launcher out, and set procs_per_node: {value}"
    if not facts.ssh and not isinstance(framework, NodeLaunched):
        return f"remove {kind}, and set procs_per_node: {value}"  # in this case, stepset starts the ranks
    if not _counts_nothing(facts):
        return f"{fix(facts, kind)}, or set procs_per_node: {value}"
    larger = not facts.ssh and facts.procs is not None and (_number(value) or 0) > facts.procs
    return f"set procs_per_node: {value}" + (", or request accelerators in resources_per_node" if larger else "")


def _total(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if (number := _number(value)) is None or facts.procs is None:
        return None
    size = facts.nodes[1] * facts.procs
    # In accelerate, --num_processes is the total number of processes only if --num_machines is given. A configuration
    # file may contain the number of machines. A command with --machine_rank may rely on the default file of the image.
    each_node = kind == "accelerate" and "nodes" not in given
    by_file = "config" in given or "node_rank" in given
    if number == (facts.procs if each_node else size) or (each_node and by_file and number == size):
        return None
    if each_node and number == size:
        why = "would be the number in each node, because --num_machines is missing"
        return f"{why}; {fix(facts, kind)}, or write {facts.procs}"
    per_node = number if each_node else number // facts.nodes[1]
    if per_node and (each_node or number % facts.nodes[1] == 0):
        remedy = _procs_remedy(facts, kind, str(per_node))
    else:
        remedy = f"{fix(facts, kind)}, or set num_nodes and procs_per_node"
    ranks = "1 rank of the job" if size == 1 else f"{size} ranks of the job"
    return f"contradicts the {ranks} (num_nodes: {facts.nodes[1]}, procs_per_node: {facts.procs}); {remedy}"


def _node_rank(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if facts.ssh:
        return None
    if facts.several:
        return f"is equal in all {facts.nodes[1]} nodes; {fix(facts, kind)}, or write $(STEPSET_NODE_RANK)"
    return None if value == "0" else f"contradicts num_nodes: 1; {fix(facts, kind)}"


def _address(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if facts.ssh:
        return None
    if facts.several:
        reference = ", or write $(PET_MASTER_ADDR)" if facts.torchrun and not facts.elastic else ""
        return f"is not node 0 of the run, whose name stepset assigns; {fix(facts, kind)}{reference}"
    return None if value in _LOCAL else f"is not the only node of the job; {fix(facts, kind)}"


def _port(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if facts.ssh or not facts.several or _number(value) in (None, facts.port):
        return None
    return f"contradicts network.port: {facts.port}; {fix(facts, kind)}, or set network.port: {value}"


def _endpoint(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    backend = given["backend"].value if "backend" in given else "c10d" if facts.elastic else "static"
    if backend not in _STORES:
        return None  # the store runs outside the job, so any address may be correct
    host = value.rpartition(":")[0] if ":" in value else value
    return _address(facts, kind, host.strip("[]"), given)


def _backend(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    ours = "c10d" if facts.elastic else "static"
    if value == ours or not facts.several:
        return None
    if facts.elastic and value == "static":
        return f"contradicts framework.elastic, which uses c10d; {fix(facts, kind)}"
    if kind == "accelerate" or "endpoint" in given:
        return None
    return f"needs --rdzv-endpoint, which only an elastic world has; {fix(facts, kind)}, or set framework.elastic"


def _rdzv_id(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if facts.elastic is None or value == facts.elastic.rdzv_id:
        return None
    return f"replaces the rendezvous ID of the run; {fix(facts, kind)}, or set framework.elastic.rdzv_id"


def _rdzv_conf(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if not facts.elastic:
        return None
    return "replaces is_host, with which node 0 hosts the store; remove it, and set framework.elastic.rdzv_conf"


def _restarts(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if facts.elastic:
        if value == str(facts.elastic.max_restarts):
            return None
        ours = f"framework.elastic.max_restarts: {facts.elastic.max_restarts}"
        return f"contradicts {ours}; {fix(facts, kind)}, or set framework.elastic.max_restarts: {value}"
    if value == "0" or not facts.several:
        return None
    backend = given["backend"].value if "backend" in given else "static"
    if backend not in _STORES or (backend == "c10d" and _OWN_STORE in facts.names):
        return None  # with these backends, the nodes perform a new rendezvous after a restart
    elastic = f"elastic: {{min_nodes: {facts.nodes[0]}, max_nodes: {facts.nodes[1]}, max_restarts: {value}}}"
    if backend == "c10d":
        return (
            "would make the nodes wait for each other forever after a restart, because torch shares the rendezvous"
            f' store by default; set env: {{{_OWN_STORE}: "1"}}, or remove the options of the rendezvous and set'
            f" framework: {{kind: torch, {elastic}}}"
        )
    return (
        "would restart the ranks of one node only, which the other nodes do not join; remove it, and set"
        f" restart.max_restarts: {value}"
    )


def _standalone(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if not facts.several:
        return None
    return f"would train in each of the {facts.nodes[1]} nodes alone; remove it, or set num_nodes: 1"


def _local_address(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    return f"is equal in all {facts.nodes[1]} nodes; remove it" if facts.several else None


def _hosts(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if not facts.ssh:
        # The job has only one node. If a job has several nodes and no ssh, another check rejects the launcher.
        return None
    as_node = isinstance(facts.job.framework, MPI) and facts.job.framework.run_launcher_as_node
    hosts = {each.partition(":")[0] for each in value.split(",")}
    if as_node and not facts.several and hosts <= {*_LOCAL}:
        return None
    remedy = "remove it" if kind == "mpirun" else f"write --hostfile {facts.hostfiles[0]} instead"
    return f"replaces the hosts of the run, which are in {facts.hostfiles[0]}; {remedy}"


def _hostfile(facts: JobWorld, kind: str, value: str, given: dict[Meaning, Setting]) -> str | None:
    if value in facts.hostfiles or not (facts.ssh or facts.several):
        return None
    if facts.hostfiles:
        remedy = "remove it" if kind == "mpirun" else f"write {facts.hostfiles[0]}"
        return f"replaces the hosts of the run, which are in {facts.hostfiles[0]}; {remedy}"
    return "does not contain the hosts of the run; give the program as script, and set framework.launcher: deepspeed"


_CHECKS: dict[Meaning, Callable[[JobWorld, str, str, dict[Meaning, Setting]], str | None]] = {
    "nodes": _nodes,
    "procs": _procs,
    "total": _total,
    "node_rank": _node_rank,
    "address": _address,
    "port": _port,
    "endpoint": _endpoint,
    "backend": _backend,
    "rdzv_id": _rdzv_id,
    "rdzv_conf": _rdzv_conf,
    "restarts": _restarts,
    "standalone": _standalone,
    "local_address": _local_address,
    "hosts": _hosts,
    "hostfile": _hostfile,
    "config": lambda *_: None,
}
