"""Finds commands that may not start the ranks of a job, if a launcher in each node must start these ranks.

Such a command replaces the launcher of stepset. It may start the ranks itself (`stepset.frameworks.node_launch`), or it
is in `pod_template`. A command that starts no launcher runs once in each node, and the processes of the nodes are not
connected.
"""

from __future__ import annotations

import shlex

from stepset.frameworks.common import node_launcher
from stepset.frameworks.launcher_flags import literal_command
from stepset.plan.model import NODE, LaunchPlan
from stepset.plan.starters import starts_ranks
from stepset.plan.values import literal_words
from stepset.spec.job import TrainingJob
from stepset.spec.scalars import shortened
from stepset.spec.template import node_env_names


def notes_on_ranks(job: TrainingJob, plan: LaunchPlan) -> list[str]:
    """Returns a note about a command that replaces the launcher of a job and may not start the ranks of the job.

    The result is not an error, because any program may start or connect ranks in ways that stepset cannot know.
    """
    launcher = node_launcher(job)
    size = plan.world.size or plan.world.num_nodes
    if launcher is None or size == 1:
        return []
    group = plan.group(NODE)
    command, args, agent = literal_command(job, group)
    words = [*command.words, *args.words]
    found = starts_ranks(words, per_node=True)
    if not words or not command.words or (found and found.what == "launcher"):
        return []
    if literal_words(group.command) != (job.command or []) and command.place == "command":
        return []  # stepset's launcher precedes the command
    names = {*(entry.name for entry in group.env), *node_env_names(job.pod_template)}
    if "RANK" in names and plan.world.procs_per_node == 1:
        return []  # each node runs one rank, which reads its position in the world from these variables
    one = "each node runs one process" if plan.world.num_nodes > 1 else "only one process runs"
    ranks = f"{size} ranks (num_nodes: {plan.world.num_nodes}, procs_per_node: {plan.world.procs_per_node})"
    counted = agent is not None and agent.counts_ranks
    check = "the run fails if it starts another number" if counted else "stepset does not check this"
    remedy = "" if job.command is not None else f"; without this command, {launcher} starts the program of the job"
    return [
        f"{command.place}: {shortened(shlex.join(words[:2]))} must start the {ranks} itself, for example with"
        f" {launcher}; {check}, and without a launcher {one}{remedy}"
    ]
