"""Decides what starts the ranks of a node: the launcher that stepset starts in each node, or the job's command.

The launcher is torchrun or `deepspeed`. A command that starts no launcher is the program of one rank. Without a
launcher, each node would run such a command once, the processes would not be connected, and the run would succeed.
`stepset.frameworks.kinds.mpi` makes the same decision for mpirun.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from stepset.frameworks.common import has_several_ranks, node_launcher, program
from stepset.plan.model import RankWrap
from stepset.plan.starters import may_connect_nodes, starts_ranks
from stepset.plan.values import Text, text
from stepset.spec.job import TrainingJob
from stepset.spec.options import Torch
from stepset.spec.scalars import shortened
from stepset.spec.template import node_container

_WORLD = frozenset({"RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR"})
"""Variables that connect a process to the world, if the job sets them."""


@dataclass(frozen=True, slots=True)
class NodeStart:
    """How each node starts its ranks.

    Args:
        command: the command of the node, without the job's args.
        wrap: how the agent wraps the ranks. None if the command starts the ranks itself.
        rule: the reason for the command, as a phrase for `stepset explain`.
        counts: whether the agent counts the ranks that the command starts.
    """

    command: tuple[Text, ...]
    wrap: RankWrap | None
    rule: str
    counts: bool


def start_of(job: TrainingJob, launcher: tuple[Text, ...], script: tuple[Text, ...]) -> NodeStart:
    """Returns how a job starts the ranks of a node.

    Args:
        launcher: the launcher of stepset with its options, for a program of any kind (`torchrun --no-python`).
        script: the command of a node that runs a script or a module with the launcher.
    """
    command = program(job)
    if job.command is None:
        return NodeStart(script, RankWrap(launcher, (command[0], text("-u"), *command[1:])), "", counts=False)
    if node_launcher(job) is None:
        return NodeStart(command, None, "unchanged, because framework.launch is command", counts=False)
    if not has_several_ranks(job):
        return NodeStart(command, None, "unchanged, because the job has one rank", counts=False)
    if why := _own_start(job):
        return NodeStart(command, None, f"unchanged, because {why}", counts=True)
    rule = f"{node_launcher(job)} starts the ranks, because the command starts none"
    return NodeStart((*launcher, *command), RankWrap(launcher, command), rule, counts=False)


def _words(job: TrainingJob) -> list[str]:
    """Returns the words of a job's command. The container `node` in `pod_template` can replace the args."""
    args = node_container(job.pod_template).get("args")
    return [*(job.command or ()), *(map(str, args) if isinstance(args, list) and args else job.args)]


def _own_start(job: TrainingJob) -> str | None:
    """Returns why the command of a job may start or connect the ranks itself. Otherwise, returns None."""
    if found := starts_ranks(words := _words(job), per_node=True):
        return (
            f"it starts {found.name}" if found.what == "launcher" else f"the shell script {found.name} may start them"
        )
    framework = job.framework
    layer = framework.env_layer if isinstance(framework, Torch) else None
    if layer == "worker" or (layer == "both" and job.procs_per_node == 1):
        return f"framework.env_layer: {layer} sets variables of ranks"
    if names := sorted(_WORLD & job.env.keys()):
        return f"env sets {names[0]}, with which the program may connect the nodes itself"
    if may_connect_nodes(words):
        return f"{shortened(shlex.join(words[:2]))} may start the ranks and connect the nodes itself"
    return None
