"""Whether a pod's command is itself a rank, or something that starts ranks.

Asked by whoever writes the agent's config, because a plan holds both kinds of commands.
"""

from __future__ import annotations

import posixpath

from stepset.plan.model import LaunchPlan, PodGroup

_LAUNCHERS = ("torchrun", "tune", "deepspeed", "accelerate", "mpirun", "mpiexec", "orterun", "prterun")


def command_is_rank(plan: LaunchPlan, group: PodGroup) -> bool:
    """Whether the agent starts the ranks of this group by starting copies of its command.

    Not where a launcher starts them, be it one the agent wraps or one in the user's own command.
    """
    settings = group.agent
    if settings is None or settings.wrap is not None or group.serves_ssh or not group.in_world:
        return False
    first = group.command[0].parts[0] if group.command and group.command[0].parts else ""
    if isinstance(first, str) and posixpath.basename(first).startswith(_LAUNCHERS):
        return False
    return plan.world.procs_per_node == settings.processes
