"""What several frameworks need: the job's program, its identity, the node group, the roles beside the world."""

from __future__ import annotations

import posixpath

from stepset.errors import BadInputError
from stepset.plan.code import FUNCTION_FILE, script_in_code
from stepset.plan.env import ALWAYS_RESERVED, job_entries, merge_env
from stepset.plan.model import (
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
from stepset.spec.job import TrainingJob
from stepset.spec.resources import accelerator, cpu_count
from stepset.spec.template import node_env_names

MASTER = "master"
"""The port of `MASTER_HOST`."""
MASTER_HOST = PodHost(NODE, 0)
"""The node at which the ranks meet."""
_PYTHON_PROGRAMS = ("python", "torchrun", "deepspeed", "tune", "accelerate", "mpirun", "mpiexec", "mlx")


def program(job: TrainingJob) -> tuple[Text, ...]:
    """The command that one rank runs, without the job's args."""
    if job.command is not None:
        return texts(job.command)
    if job.module is not None:
        return texts(["python3", "-m", job.module])
    path = FUNCTION_FILE if job.function is not None else script_in_code(job)
    return (text("python3"), text(CodePath(path)))


MOST_PROCESSES = 4096
"""The limit for a node, above the CPUs of any machine: a job with more has mistaken bytes for CPUs."""


def count_processes(job: TrainingJob, without_accelerator: int | None = None) -> int:
    """Returns the number of processes of a node.

    Args:
        without_accelerator: the meaning of `auto` on a node without an accelerator; default: its CPUs.
    """
    processes = _processes(job, without_accelerator)
    if processes > MOST_PROCESSES:
        raise BadInputError(
            f"procs_per_node: {processes} processes a node are more than {MOST_PROCESSES}; check procs_per_node and"
            " resources_per_node.cpu, which counts CPUs"
        )
    return processes


def _processes(job: TrainingJob, without_accelerator: int | None) -> int:
    resources = job.node_resources()
    _, devices = accelerator(resources)
    procs = job.procs_per_node
    if isinstance(procs, int):
        return procs
    if procs == "cpu" or (procs == "auto" and not devices):
        return cpu_count(resources) if procs == "cpu" or without_accelerator is None else without_accelerator
    if not devices:
        raise BadInputError("procs_per_node: gpu, but resources_per_node has no accelerator; add for example gpus: 1")
    return devices


def needs_python(job: TrainingJob) -> bool:
    """Whether the job itself needs Python in the image, so that the agent can rely on it."""
    if job.command is None:
        return True
    return posixpath.basename(job.command[0]).startswith(_PYTHON_PROGRAMS)


def uses_agent(job: TrainingJob) -> bool:
    """Whether the agent wraps the command: as the job specifies, else if the image certainly has Python."""
    return needs_python(job) if job.agent == "auto" else bool(job.agent)


def identity_env(job: TrainingJob, agent: bool) -> tuple[EnvEntry, ...]:
    """The STEPSET_* variables of a pod of the world."""
    entries = [
        EnvEntry("STEPSET_JOB", text(job.name), "the job's name"),
        EnvEntry("STEPSET_RUN", text(RunName()), "the run's name"),
        EnvEntry("STEPSET_NODE_RANK", text(NodeRank()), "index of the pod in its group"),
        EnvEntry("STEPSET_NUM_NODES", text(job.num_nodes), "num_nodes"),
        EnvEntry("STEPSET_ATTEMPT", text(Attempt()), "gang restarts so far"),
    ]
    if agent:
        entries.append(EnvEntry("STEPSET_RESULT_FILE", text(ResultFile()), "where rank 0 leaves the result"))
    if job.checkpoint_dir:
        entries.append(EnvEntry("STEPSET_CHECKPOINT_DIR", text(job.checkpoint_dir), "checkpoint_dir"))
    return tuple(entries)


def role_groups(job: TrainingJob) -> tuple[PodGroup, ...]:
    """The roles beside the world: they get no training environment, only their own variables."""
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
        )
        for role in job.roles
    )


def before_world(job: TrainingJob) -> tuple[StartAfter, ...]:
    """The roles that must complete before the nodes start."""
    return tuple(StartAfter(role.name, "Complete") for role in job.roles if role.before)


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
) -> PodGroup:
    """Returns the pods of the world, each running `command` with the framework's `env`.

    Args:
        command: what a pod runs if the agent does not change it.
        reserved: further names that the job may take only with override.
        processes: copies of the command that the agent starts in each pod.
    """
    agent = uses_agent(job)
    if not agent:
        _check_does_without_agent(job, env, processes)
    merged = group_env(job, (*identity_env(job, agent), *env), reserved)
    settings = AgentSettings(
        # Pods without a port do not wait for each other: the name of a pod that has ended does not resolve.
        wait_for=(NODE,) if job.num_nodes > 1 and ports else (),
        peer_timeout=job.network.peer_timeout,
        processes=processes,
        wrap=wrap,
        world_size=world_size,
        launcher_restarts=launcher_restarts,
    )
    return PodGroup(
        name=NODE,
        count=job.num_nodes,
        in_world=True,
        command=command,
        args=texts(job.args),
        env=merged,
        resources=job.node_resources(),
        image=job.image,
        ports=ports,
        start_after=before_world(job),
        agent=settings if agent else None,
    )


def group_env(job: TrainingJob, ours: tuple[EnvEntry, ...], reserved: tuple[str, ...] = ()) -> tuple[EnvEntry, ...]:
    """Returns stepset's variables, then the job's; BadInputError if the job or its template takes a reserved name."""
    names = {*(entry.name for entry in ours), *reserved, *ALWAYS_RESERVED}
    if hidden := sorted(names.intersection(node_env_names(job.pod_template))):
        raise BadInputError(
            *(
                f"pod_template.containers.{NODE}.env: {name} is reserved, because {job.framework.kind} jobs get it from"
                f" stepset; leave it out, or take it with env: {{{name}: {{value: ..., override: true}}}}"
                for name in hidden
            )
        )
    return merge_env(ours, job.env, reserved, job.framework.kind)


def _check_does_without_agent(job: TrainingJob, env: tuple[EnvEntry, ...], processes: int) -> None:
    """Raises BadInputError for what only the agent can do."""
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
        if isinstance(entry.value, Text) and entry.value.known_in_pod and entry.pod_value is None:
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
    """The plan of a framework whose world is one group of equal pods."""
    return LaunchPlan(
        name=job.name,
        world=World(job.num_nodes, procs, elastic),
        groups=(*role_groups(job), node),
        ports=ports if ports is not None else {MASTER: job.network.port},
        success=SuccessRule(NODE, elastic[0] if elastic else job.num_nodes),
        files=files,
        notes=notes,
    )
