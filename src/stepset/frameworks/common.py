"""Functions that several frameworks use.

The functions create the program, the STEPSET_* variables, the pod group of the nodes and the pod groups of the roles.
"""

from __future__ import annotations

from stepset.errors import BadInputError
from stepset.plan import launchers
from stepset.plan.code import FUNCTION_FILE, script_in_code
from stepset.plan.env import ALWAYS_RESERVED, job_entries, merge_env
from stepset.plan.model import (
    MAX_PROCESSES,
    NODE,
    AgentSettings,
    EnvEntry,
    LaunchPlan,
    PlanFile,
    PodGroup,
    RankWrap,
    StartAfter,
    SuccessRule,
    World,
)
from stepset.plan.values import Attempt, CodePath, NodeRank, PodHost, ResultFile, RunName, Text, text, texts
from stepset.spec.devices import Devices, node_devices
from stepset.spec.job import TrainingJob
from stepset.spec.options import NodeLaunched, Torch
from stepset.spec.resources import cpu_count
from stepset.spec.template import node_env_names

MASTER = "master"
"""The name of the rendezvous port."""
MASTER_HOST = PodHost(NODE, 0)
"""The host of the rendezvous. This is pod 0 of the nodes."""
MAX_HOST_LINES = 100_000
"""The maximum number of lines of a host file.

A larger file would exceed the limit of a ConfigMap, which is 1 MiB.
"""
# Entries that are equal in all jobs.
_RUN = EnvEntry("STEPSET_RUN", text(RunName()), "the run's name")
_NODE_RANK = EnvEntry("STEPSET_NODE_RANK", text(NodeRank()), "index of the pod in its group")
_ATTEMPT = EnvEntry("STEPSET_ATTEMPT", text(Attempt()), "gang restarts so far")
_RESULT_FILE = EnvEntry("STEPSET_RESULT_FILE", text(ResultFile()), "file for the result of rank 0")
_PYTHON = text("python3")


def program(job: TrainingJob) -> tuple[Text, ...]:
    """Returns the command of a rank, without the job's `args`."""
    if job.command is not None:
        return texts(job.command)
    if job.module is not None:
        return texts(["python3", "-m", job.module])
    path = FUNCTION_FILE if job.function is not None else script_in_code(job)
    return (_PYTHON, text(CodePath(path)))


def count_processes(job: TrainingJob, without_accelerator: int | None = None) -> int:
    """Returns the number of processes that run on each node.

    Args:
        without_accelerator: the number of processes if `procs_per_node` is `auto` and the node has no accelerator. By
            default, this is the number of CPUs of the node.
    """
    processes = _processes(job, without_accelerator)
    if processes > MAX_PROCESSES:
        raise BadInputError(
            f"procs_per_node: {processes} processes per node are more than {MAX_PROCESSES}; check procs_per_node, and"
            " resources_per_node.cpu, a number of CPUs"
        )
    return processes


def has_several_ranks(job: TrainingJob) -> bool:
    """Returns whether the world of a job may have more than one rank."""
    elastic = job.framework.elastic if isinstance(job.framework, Torch) else None
    return (elastic.bounds(job.num_nodes)[1] if elastic else job.num_nodes) * count_processes(job) > 1


def check_host_lines(job: TrainingJob, per_node: int = 1) -> None:
    """Raises BadInputError if the host file of a job would not fit into a ConfigMap.

    Callers must call this function before they create the lines of the host file.

    Args:
        per_node: the number of lines for each node.
    """
    if job.num_nodes * per_node > MAX_HOST_LINES:
        raise BadInputError(
            f"num_nodes: {job.num_nodes} nodes need a host file of more than 1 MiB, which a ConfigMap cannot hold;"
            " lower it"
        )


def _processes(job: TrainingJob, without_accelerator: int | None) -> int:
    procs = job.procs_per_node
    if isinstance(procs, int):
        return procs
    if procs == "cpu":
        return cpu_count(job.node_resources())
    devices = counted_devices(job)
    if not devices.processes and procs == "gpu":
        if devices.unknown:
            raise BadInputError(
                f"procs_per_node: gpu, but it is unknown whether {', '.join(devices.unknown)} is an accelerator; give"
                " procs_per_node as a number"
            )
        raise BadInputError("procs_per_node: gpu, but resources_per_node has no accelerator; add for example gpus: 1")
    if not devices.processes:
        return cpu_count(job.node_resources()) if without_accelerator is None else without_accelerator
    return devices.processes


def counted_devices(job: TrainingJob) -> Devices:
    """Returns the accelerators of a node.

    Raises BadInputError if the number of processes cannot be determined from the accelerators, or if the request for
    accelerators is invalid.
    """
    devices = node_devices(job)
    if devices.invalid:
        raise BadInputError(f"{devices.invalid}: {devices.problem}")
    if devices.problem:
        raise BadInputError(f"procs_per_node: {job.procs_per_node} cannot count the processes: {devices.problem}")
    return devices


def device_notes(job: TrainingJob, *, selects_mig: bool = False) -> tuple[str, ...]:
    """Returns notes about the devices of a node.

    There is a note if the number of processes may differ from the number of requested devices, or if resources that are
    not counted may be devices. There is also a note if the training code must select a MIG device in each process.

    Args:
        selects_mig: whether the agent assigns a MIG device to each process.
    """
    if isinstance(job.procs_per_node, int) or job.procs_per_node == "cpu":
        return ()
    devices = node_devices(job)
    notes = []
    if devices.unit in ("whole", "percent", "share"):
        hint = f"; {devices.hint}" if devices.hint else ""
        notes.append(f"procs_per_node: {devices.processes} ({devices.rule}){hint}")
    if devices.unit == "mig" and devices.processes > 1 and not selects_mig:
        notes.append(
            f"procs_per_node: {devices.rule}; a CUDA process uses one MIG device, so the training code must set"
            " CUDA_VISIBLE_DEVICES in each rank to the entry of NVIDIA_VISIBLE_DEVICES with the index LOCAL_RANK"
        )
    if devices.unknown:
        notes.append(
            f"procs_per_node: not counted: {', '.join(devices.unknown)}; if these are accelerators, give"
            " procs_per_node as a number"
        )
    if devices.ignored:
        notes.append(f"procs_per_node: {devices.rule}; not counted: {', '.join(devices.ignored)}")
    return tuple(notes)


def node_launcher(job: TrainingJob) -> str | None:
    """Returns the launcher that starts the ranks in each node, unless the job's command starts them."""
    return job.framework.node_launcher if isinstance(job.framework, NodeLaunched) else None


def needs_python(job: TrainingJob) -> bool:
    """Returns whether the job needs Python in the image. If so, the agent can use this Python.

    The launchers of a node are written in Python.
    """
    if job.command is None:
        return True
    return launchers.needs_python(job.command[0]) or (node_launcher(job) is not None and has_several_ranks(job))


def uses_agent(job: TrainingJob) -> bool:
    """Returns whether the agent wraps the command.

    The job's field `agent` decides this. If the field is `auto`, the agent wraps the command if the job needs Python in
    the image.
    """
    return needs_python(job) if job.agent == "auto" else bool(job.agent)


def identity_env(job: TrainingJob, agent: bool) -> tuple[EnvEntry, ...]:
    """Returns the STEPSET_* variables of the pods that take part in the training.

    Args:
        agent: whether the agent wraps the command.
    """
    entries = [
        EnvEntry("STEPSET_JOB", text(job.name), "the job's name"),
        _RUN,
        _NODE_RANK,
        EnvEntry("STEPSET_NUM_NODES", text(job.num_nodes), "num_nodes"),
        _ATTEMPT,
    ]
    if agent:
        entries.append(_RESULT_FILE)
    if job.checkpoint_dir:
        entries.append(EnvEntry("STEPSET_CHECKPOINT_DIR", text(job.checkpoint_dir), "checkpoint_dir"))
    return tuple(entries)


def role_groups(job: TrainingJob) -> tuple[PodGroup, ...]:
    """Returns the pod groups of the roles. The pods of a role get only the variables that the role defines."""
    return tuple(
        PodGroup(
            name=role.name,
            count=role.replicas,
            in_world=False,
            command=texts(role.command),
            args=texts(role.args),
            env=job_entries(role.env),
            resources=role.resources,
            image=role.image or job.image,
            start_after=tuple(StartAfter(name, "Complete") for name in dict.fromkeys(role.after)),
            role=role,
        )
        for role in job.roles
    )


def before_world(job: TrainingJob) -> tuple[StartAfter, ...]:
    """Returns the roles that must complete before the training starts.

    If a returned role waits for another role, the other role is not returned, because the other role
    completes earlier.
    """
    waited_for = {name for role in job.roles if role.before for name in role.after}
    return tuple(StartAfter(role.name, "Complete") for role in job.roles if role.before and role.name not in waited_for)


def node_group(
    job: TrainingJob,
    env: tuple[EnvEntry, ...],
    command: tuple[Text, ...],
    *,
    reserved: tuple[str, ...] = (),
    processes: int = 1,
    wrap: RankWrap | None = None,
    world_size: int | None = None,
    launcher_restarts: bool = False,
    ports: tuple[str, ...] = (MASTER,),
    command_rule: str = "",
    counts_ranks: bool = False,
) -> PodGroup:
    """Returns the group of the pods that train. Each pod runs `command` with the variables `env`.

    Args:
        env: the variables that the framework sets.
        command: the command of a pod. It does not include the agent, which starts the command.
        reserved: names of further variables that the job may set only with `override: true`.
        processes: the number of copies of the command that the agent starts in each pod.
        wrap: how the agent wraps the ranks that a launcher starts.
        world_size: the required number of ranks. None if the number may vary.
        launcher_restarts: whether the launcher restarts failed ranks.
        ports: the names of the ports on which the pods listen.
        command_rule: the reason why stepset changes or keeps the job's command. Otherwise "".
        counts_ranks: whether the agent counts the ranks that the command starts itself.
    """
    agent = uses_agent(job)
    if not agent:
        _check_runs_without_agent(job, env, processes)
    merged = group_env(job, (*identity_env(job, agent), *env), reserved)
    settings = AgentSettings(
        # Pods without a port do not connect to each other. Such pods must not wait for each other, because the host
        # name of a pod no longer resolves after the pod has finished.
        wait_for=(NODE,) if job.num_nodes > 1 and ports else (),
        peer_timeout=job.network.peer_timeout,
        processes=processes,
        wrap=wrap,
        world_size=world_size,
        launcher_restarts=launcher_restarts,
        counts_ranks=counts_ranks,
        hang=job.hang_times,
    )
    return PodGroup(
        name=NODE,
        count=job.num_nodes,
        in_world=True,
        command=command,
        command_rule=command_rule,
        args=texts(job.args),
        env=merged,
        resources=job.node_resources(),
        image=job.image,
        ports=ports,
        start_after=before_world(job),
        agent=settings if agent else None,
    )


def group_env(job: TrainingJob, ours: tuple[EnvEntry, ...], reserved: tuple[str, ...] = ()) -> tuple[EnvEntry, ...]:
    """Returns the variables of a pod group. stepset's variables precede the variables of the job.

    Raises BadInputError if the job or its pod template sets a reserved variable.

    Args:
        reserved: names of further variables that the job may set only with `override: true`.
    """
    taken = node_env_names(job.pod_template)
    names = {*(entry.name for entry in ours if not entry.from_pod), *reserved, *ALWAYS_RESERVED}
    if taken and (hidden := sorted(names.intersection(taken))):
        raise BadInputError(
            *(
                f"pod_template.containers.{NODE}.env: {name} is reserved, because {job.framework.kind} jobs get it from"
                f" stepset; leave it out, or override it with env: {{{name}: {{value: ..., override: true}}}}"
                for name in hidden
            )
        )
    return merge_env(ours, job.env, reserved, job.framework.kind)


def _check_runs_without_agent(job: TrainingJob, env: tuple[EnvEntry, ...], processes: int) -> None:
    """Raises BadInputError for a job that runs without the agent but has settings that need the agent."""
    program = job.command[0] if job.command else "the command"
    remedy = (
        "leave agent out"
        if job.agent is False
        else f"set agent: true if the image of {program!r} has python3, which stepset cannot determine"
    )
    if processes > 1:
        raise BadInputError(
            f"agent: only stepset's agent can start {processes} processes per node; {remedy}, or set procs_per_node: 1"
        )
    for entry in env:
        if isinstance(entry.value, Text) and entry.value.needs_agent and entry.pod_value is None:
            raise BadInputError(
                f"agent: only stepset's agent can set {entry.name}, which differs between pods; {remedy}"
            )


def single_group_plan(
    job: TrainingJob,
    node: PodGroup,
    procs: int | None,
    *,
    ports: dict[str, int] | None = None,
    files: tuple[PlanFile, ...] = (),
    elastic: tuple[int, int] | None = None,
    notes: tuple[str, ...] = (),
) -> LaunchPlan:
    """Returns the plan of a framework that trains in one group of identical pods.

    Args:
        procs: the number of processes per node. None if the launcher determines the number from the devices.
        ports: a mapping from port names to port numbers. By default, it contains the rendezvous port with the number
            `network.port`.
        elastic: the minimum and the maximum number of nodes of an elastic world. None if the number of nodes is fixed.
        notes: warnings for the user. Each warning is one line.
    """
    may_shrink = elastic is not None and elastic[0] < job.num_nodes
    return LaunchPlan(
        name=job.name,
        world=World(job.num_nodes, procs, elastic),
        groups=(*role_groups(job), node),
        ports=ports if ports is not None else {MASTER: job.network.port},
        success=SuccessRule(NODE, 1 if may_shrink else job.num_nodes, first=may_shrink),
        files=files,
        notes=notes,
    )
