"""Checks that the options of a launcher in the user's command agree with the job.

If the options contradict the job, a wrong number of ranks can train, or ranks can wait forever for other ranks. Options
of torchrun take precedence over the variables that stepset sets. The other launchers do not read these variables.

Only literal values are checked, because the value of a reference such as `$(STEPSET_NODE_RANK)` differs between pods.
The commands of `plain` jobs are not checked, because stepset sets no variables for the launchers of such jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from stepset.frameworks.accelerate_launch import unconnected
from stepset.frameworks.launcher_options import Meaning, Setting, described_world, torchrun_variable
from stepset.frameworks.launcher_values import JobWorld, missing_reference, problem_of
from stepset.plan.launchers import Launcher, find_launcher
from stepset.plan.model import LAUNCHER, NODE, AgentSettings, LaunchPlan, PodGroup
from stepset.plan.values import literal_words
from stepset.spec.environ import EnvText
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI
from stepset.spec.scalars import shortened
from stepset.spec.template import node_container, node_env_names, node_place
from stepset.unstructured import rows

_PER_NODE = ("torchrun", "tune", "accelerate", "deepspeed", "fabric")
"""Launchers that run once in every node. Each other launcher runs once and starts the ranks of all nodes."""
_DEPENDENT = ("endpoint", "backend", "restarts")
"""Settings that depend on other options. They can be checked only if all options are known."""
_ASSIGNED = re.compile(r"\b([A-Z][A-Z0-9_]*)=")
"""Matches the assignment of a variable in a command, such as `A=1` in `env A=1 torchrun`."""
_ANY = "$"
"""Represents a value that is unknown before the pod starts."""


def check_launcher_flags(job: TrainingJob, plan: LaunchPlan) -> list[str]:
    """Returns one line for each contradiction between a job and the launcher in the job's command.

    The function checks the options of the launcher. It also checks variables of the job that torchrun reads as options.
    With `framework.launch: command`, the command is not checked.
    """
    if job.framework.kind == "plain":
        return []
    facts = _job_world(job, plan)
    variables = _torchrun_variables(job) if facts.torchrun else {}
    given = {each.meaning: each for each in variables.values()}
    problems = [
        f"{place}: {problem}"
        for place, each in variables.items()
        if not _is_reference(each.value) and (problem := problem_of(facts, "torchrun", each, given))
    ]
    if getattr(job.framework, "launch", "auto") == "command":
        return problems
    command, args, agent = literal_command(job, _starting_group(plan))
    if command and (launcher := find_launcher((*command.words, *args.words))):
        copies = agent.processes if agent else 1
        facts = replace(facts, names=facts.names.union(*map(_ASSIGNED.findall, command.words)))
        problems += _in_command(facts, launcher, copies, (command, args), given)
    return problems


def launcher_notes(job: TrainingJob, plan: LaunchPlan) -> list[str]:
    """Returns notes about a launcher in the job's command that probably does not connect the ranks."""
    if job.framework.kind == "plain" or plan.ssh:
        return []
    command, args, _ = literal_command(job, _starting_group(plan))
    launcher = find_launcher((*command.words, *args.words))
    if launcher is None or launcher.kind != "accelerate" or not (world := described_world(launcher)).complete:
        return []
    facts = _job_world(job, plan)
    found = unconnected(facts, launcher, {each.meaning for each in world.settings})
    return [f"{command.place}: {found}"] if found else []


def _starting_group(plan: LaunchPlan) -> PodGroup:
    """Returns the group whose command starts the ranks."""
    return plan.group(LAUNCHER if plan.ssh else NODE)


def _job_world(job: TrainingJob, plan: LaunchPlan) -> JobWorld:
    names = {entry.name for entry in _starting_group(plan).env}
    return JobWorld(
        job,
        plan.world.elastic or (job.num_nodes, job.num_nodes),
        plan.world.procs_per_node,
        job.network.port,
        tuple(file.path for file in plan.files),
        plan.ssh is not None,
        "PET_NNODES" in names,
        frozenset((*names, *node_env_names(job.pod_template))),
    )


class Words(NamedTuple):
    """The words of a command or of its args, and the path of the job file's field that contains the words."""

    words: list[str]
    place: str


def literal_command(job: TrainingJob, group: PodGroup) -> tuple[Words, Words, AgentSettings | None]:
    """Returns the user's command, the user's args, and the settings of the agent.

    The container `node` in `pod_template` can have a command and args. Its command replaces the command of the job. Its
    args replace the args of the job. If the container has a command, the agent does not run, and the returned settings
    are None.
    """
    template, place = node_container(job.pod_template), node_place(job.pod_template)
    command, args = (_texts(template.get(field)) for field in ("command", "args"))
    words = literal_words(group.command) if job.command is not None else []
    if group.name == NODE and job.command and words[-len(job.command) :] == job.command:
        words = job.command  # without the launcher that stepset has put before the command
    own = Words(words, "command")
    return (
        own if command is None else Words(command, f"{place}.command"),
        Words(literal_words(group.args), "args") if args is None else Words(args, f"{place}.args"),
        group.agent if command is None else None,
    )


def _texts(value: object) -> list[str] | None:
    return value if isinstance(value, list) and value and all(isinstance(each, str) for each in value) else None


def _torchrun_variables(job: TrainingJob) -> dict[str, Setting]:
    """Returns the job's variables that torchrun reads as options. The keys are the paths in the job file.

    Variables with `override: true` are not returned, because the user explicitly replaces stepset's value.
    """
    found = {}
    for name, var in job.env.items():
        if not var.override:
            found[f"env.{name}"] = (name, var.value if isinstance(var, EnvText) else _ANY)
    for row in rows(node_container(job.pod_template), "env"):
        name = str(row.get("name"))
        found[f"{node_place(job.pod_template)}.env.{name}"] = (name, str(row.get("value") or _ANY))
    return {
        place: Setting(meaning, value, f"{name}={value}", None)
        for place, (name, value) in found.items()
        if (meaning := torchrun_variable(name)) and not (meaning == "standalone" and value == "0")
    }


def _in_command(
    facts: JobWorld,
    launcher: Launcher,
    copies: int,
    given: tuple[Words, Words],
    variables: dict[Meaning, Setting],
) -> Iterator[str]:
    command, args = given
    if facts.ssh and launcher.kind in ("torchrun", "tune", "accelerate", "fabric"):
        return  # mpirun starts the launcher as the program of each rank
    if reason := _in_each_node(facts, launcher, copies):
        yield f"{command.place}: {reason}"
        return
    world = described_world(launcher)
    by_meaning = {**variables, **{each.meaning: each for each in world.settings}}
    for setting in world.settings:
        if setting.meaning in _DEPENDENT and not world.complete:
            continue
        if _is_reference(setting.value):
            problem = missing_reference(facts, launcher.kind, setting.value)
        else:
            problem = problem_of(facts, launcher.kind, setting, by_meaning)
        if problem:
            at = None if launcher.at is None or setting.at is None else launcher.at + setting.at
            place = (args if at is not None and at >= len(command.words) else command).place
            yield f"{place}: {shortened(setting.written)} of {launcher.name} {problem}"
    if world.complete:
        find = _hosts_lack if facts.ssh else _lack
        if lack := find(facts, launcher, by_meaning):
            yield f"{command.place}: {lack}"


def _in_each_node(facts: JobWorld, launcher: Launcher, copies: int) -> str | None:
    """Returns a problem if too many copies of the launcher would run. Otherwise, returns None.

    There are two such cases:

    - The launcher starts the ranks of all nodes, but would run in each node.
    - Several copies of the launcher would run in the same node.
    """
    if facts.ssh:
        return None
    if launcher.kind not in _PER_NODE and facts.several:
        remedy = (
            "set framework: mpi" if launcher.kind != "mlx.launch" else "remove it, because stepset starts the ranks"
        )
        return f"{launcher.name} would start its ranks separately in each of the {facts.nodes[1]} nodes; {remedy}"
    if copies > 1:
        remedy = "leave framework.launcher out" if facts.job.framework.kind == "torch" else "set procs_per_node: 1"
        return (
            f"{launcher.name} starts the ranks of a node itself, and stepset would start it {copies} times in each"
            f" node; remove it, or {remedy}"
        )
    return None


def _lack(facts: JobWorld, launcher: Launcher, given: dict[Meaning, Setting]) -> str | None:
    """Returns a problem if the launcher lacks an option that connects the nodes.

    Without such an option, each node would train separately.
    """
    if not facts.several:
        return None
    # `tune run` reads PET_* only if its command line has an option of torchrun.
    if launcher.kind == "tune" and ("endpoint" not in given or not launcher.words[0].startswith("-")):
        lack = "--rdzv-endpoint"
        remedy = (
            "write --rdzv-endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT), or give framework.recipe and framework.config"
            " instead of command"
        )
    elif launcher.kind == "deepspeed" and "hostfile" not in given:
        lack = "--hostfile"
        remedy = "give the program as script, and set framework: {kind: deepspeed, launcher: deepspeed}"
    elif "nodes" not in given and (launcher.kind == "fabric" or (launcher.kind == "torchrun" and not facts.torchrun)):
        lack = "--num-nodes" if launcher.kind == "fabric" else "--nnodes"
        remedy = "give the program as script" + ("" if facts.torchrun else ", which torchrun starts in a torch job")
    else:
        return None
    return f"{launcher.name} without {lack} would train in each of the {facts.nodes[1]} nodes alone; {remedy}"


def _hosts_lack(facts: JobWorld, launcher: Launcher, given: dict[Meaning, Setting]) -> str | None:
    """Returns a problem if the launcher has no option that specifies the hosts.

    Without such an option, the launcher would start all ranks in the launcher pod. mpirun does not need such an option,
    because stepset sets variables with the path of the host file.
    """
    framework = facts.job.framework
    alone = isinstance(framework, MPI) and framework.run_launcher_as_node and not facts.several
    if launcher.kind not in ("horovodrun", "deepspeed") or alone or "hosts" in given or "hostfile" in given:
        return None
    return (
        f"{launcher.name} without --hostfile would start all ranks in the launcher; write --hostfile"
        f" {facts.hostfiles[0]}, or give the program as script"
    )


def _is_reference(value: str) -> bool:
    """Returns whether a value contains a reference to a variable."""
    return "$" in value
