"""Describes the size of a training world in words."""

from __future__ import annotations

from stepset.watch.present.sentences import counted


def world_in_words(num_nodes: int, procs_per_node: int | None) -> str:
    """Returns the numbers of nodes, processes and ranks of a training world in words.

    >>> world_in_words(2, 2)
    '2 nodes x 2 processes = 4 ranks'
    """
    nodes = counted(num_nodes, "node")
    if procs_per_node is None:
        return f"{nodes}, one process for each device"
    procs = counted(procs_per_node, "process", "processes")
    return f"{nodes} x {procs} = {counted(num_nodes * procs_per_node, 'rank')}"
