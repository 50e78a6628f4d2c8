"""Determines which ranks each pod contains, and whether a pod's command is one rank or a launcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepset.plan.launchers import Launcher, find_launcher
from stepset.plan.model import NODE, AgentSettings, LaunchPlan, PodGroup
from stepset.plan.values import literal_words


def command_is_rank(plan: LaunchPlan, group: PodGroup) -> bool:
    """Returns whether the agent starts each rank of a group as a copy of the group's command.

    The result is False if a launcher starts the ranks. The launcher can also be part of the user's command. `tune run`
    of a recipe on one device starts no other process, so its process is a rank.
    """
    settings = group.agent
    if settings is None or settings.wrap is not None or plan.ssh is not None or not group.in_world:
        return False
    launcher = find_launcher(literal_words(group.command))
    if launcher is not None and not _runs_the_program_itself(launcher):
        return False
    return plan.world.procs_per_node == settings.processes


def rank_config(plan: LaunchPlan, settings: AgentSettings) -> dict[str, Any]:
    """Returns those fields of the agent's configuration that are the same in pods and in local nodes."""
    config: dict[str, Any] = {} if settings.world_size is None else {"world_size": settings.world_size}
    flags = {
        "launcher_restarts": settings.launcher_restarts,
        "counts_ranks": settings.counts_ranks,
        "mpi": plan.ssh is not None,
    }
    config |= {name: True for name, value in flags.items() if value}
    if settings.hang is not None:
        config["hang"] = {"after": settings.hang.after, "first": settings.hang.first}
        if settings.hang.action != "report":
            config["hang"]["action"] = settings.hang.action
    return config


def _runs_the_program_itself(launcher: Launcher) -> bool:
    """Returns whether a launcher runs the program in its own process, so that this process is a rank.

    `tune run` starts torchrun only if an option of torchrun precedes the recipe (torchtune 0.6.1 _cli/run.py).
    """
    return launcher.kind == "tune" and bool(launcher.words) and not launcher.words[0].startswith("-")


@dataclass(frozen=True, slots=True)
class RankRange:
    """The ranks of the pods of a group. Each pod has `per_pod` ranks."""

    first: int
    per_pod: int

    def of(self, index: int) -> range:
        """Returns the ranks of the pod with this index in the group."""
        return range(self.first + index * self.per_pod, self.first + (index + 1) * self.per_pod)


def rank_ranges(plan: LaunchPlan) -> dict[str, RankRange]:
    """Returns a mapping from the names of the pod groups to the ranks of their pods.

    The mapping does not contain a group if its ranks are unknown before the pods start.
    """
    procs = plan.world.procs_per_node
    if procs is None:
        return {}
    # If the launcher pod is a node, its ranks come first in Open MPI (frameworks/kinds/mpi.py), but last in the plan.
    first = {NODE: 0}
    return {
        group.name: RankRange(first.get(group.name, (plan.world.num_nodes - 1) * procs), procs)
        for group in plan.groups
        if _holds_ranks(plan, group)
    }


def max_ranks(plan: LaunchPlan) -> int | None:
    """Returns the number of ranks of a run, or the maximum number if the world is elastic.

    Returns None if the number is unknown before the pods start, for example if a launcher in the user's command
    determines the number.
    """
    if (held := rank_ranges(plan).get(NODE)) is None:
        return None
    return held.per_pod * (plan.world.elastic[1] if plan.world.elastic else plan.world.num_nodes)


def _holds_ranks(plan: LaunchPlan, group: PodGroup) -> bool:
    if not group.in_world or group.agent is None:
        return False
    return group.agent.wrap is not None or plan.ssh is not None or command_is_rank(plan, group)
