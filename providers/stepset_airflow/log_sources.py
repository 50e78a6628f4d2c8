"""From the ranks whose lines a task log shows to the names of who prints on their behalf. Pure.

Used by cluster_run.py: on a cluster only the pods that hold one of these are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.plan.model import LaunchPlan


def log_sources(ranks: frozenset[int] | None, plan: LaunchPlan) -> frozenset[str] | None:
    """Whose lines are wanted: the ranks', their launchers', and of pods that are no nodes.

    Args:
        ranks: wanted; None: all; empty: none.
        plan: of the job.

    Returns:
        Sources such as `rank 0`, `node 0`, `launcher`, `prepare-0`; None: all; empty: none.
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
