"""The ranks of each pod, and whether a pod's command is itself a rank or starts ranks."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from stepset.plan.model import NODE, LaunchPlan, PodGroup

_LAUNCHERS = ("torchrun", "tune", "deepspeed", "accelerate", "mpirun", "mpiexec", "orterun", "prterun")


def command_is_rank(plan: LaunchPlan, group: PodGroup) -> bool:
    """Whether the agent starts the ranks of this group as copies of its command.

    False if a launcher starts them: one that the agent wraps, or one in the user's own command.
    """
    settings = group.agent
    if settings is None or settings.wrap is not None or plan.ssh is not None or not group.in_world:
        return False
    first = group.command[0].parts[0] if group.command and group.command[0].parts else ""
    if isinstance(first, str) and posixpath.basename(first).startswith(_LAUNCHERS):
        return False
    return plan.world.procs_per_node == settings.processes


@dataclass(frozen=True, slots=True)
class RankRange:
    """The ranks of a group's pods: pod k has `per_pod` ranks from `first + k * per_pod` on."""

    first: int
    per_pod: int


def rank_ranges(plan: LaunchPlan) -> dict[str, RankRange]:
    """Returns group -> ranks of its pods, for groups whose ranks are known before they start."""
    procs = plan.world.procs_per_node
    if procs is None:
        return {}
    # The plan places the ranks of a launcher that is a node last; Open MPI numbers them first (frameworks/mpi.py).
    first = {NODE: 0}
    return {
        group.name: RankRange(first.get(group.name, (plan.world.num_nodes - 1) * procs), procs)
        for group in plan.groups
        if _holds_ranks(plan, group)
    }


def _holds_ranks(plan: LaunchPlan, group: PodGroup) -> bool:
    if not group.in_world or group.agent is None:
        return False
    return group.agent.wrap is not None or plan.ssh is not None or command_is_rank(plan, group)
