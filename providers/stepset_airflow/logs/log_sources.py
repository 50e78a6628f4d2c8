"""Determines the sources whose lines a task log shows. Only the logs of the pods of these sources are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.plan.model import LaunchPlan


def log_sources(ranks: frozenset[int] | None, plan: LaunchPlan) -> frozenset[str] | None:
    """Returns the sources whose lines the task log shows. None means all sources.

    A source is a name such as `rank 0`, `node 0`, `launcher` or `prepare-0`. The returned sources are the ranks, the
    launchers of these ranks, and all pods that are not nodes of the run.

    `ranks` is the set of the ranks whose lines are shown. If `ranks` is None, all ranks are shown, and the function
    returns None.
    """
    from stepset.plan.model import LAUNCHER, NODE
    from stepset.plan.ranks import rank_ranges

    if not ranks:
        return ranks if ranks is None else frozenset()
    held = rank_ranges(plan).get(NODE)
    found = {f"rank {rank}" for rank in ranks}
    for group in plan.groups:
        if group.name == LAUNCHER:
            found.add(LAUNCHER)
        elif group.name != NODE:
            found |= {f"{group.name}-{index}" for index in range(group.count)}
        elif held is not None:
            found |= {f"node {(rank - held.first) // held.per_pod}" for rank in ranks}
        else:
            found |= {f"node {index}" for index in range(group.count)}
    return frozenset(found)
