"""Distributes this machine's GPUs among the simulated nodes. NCCL does not allow two nodes to use the same GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpus(environ: Mapping[str, str], driver: Path = _DRIVER) -> tuple[str, ...]:
    """Returns the GPUs that a process with this environment may use.

    CUDA_VISIBLE_DEVICES contains these GPUs. If this variable is not set, the function returns all GPUs in the
    directory `driver`.
    """
    if (named := environ.get(VISIBLE)) is not None:
        return tuple(word.strip() for word in named.split(",") if word.strip() not in ("", "-1"))
    try:
        return tuple(str(n) for n, _ in enumerate(driver.iterdir()))
    except OSError:
        return ()


def gpus_of_node(gpus: tuple[str, ...], node: int, nodes: int, per_node: int) -> tuple[str, ...] | None:
    """Returns the GPUs of one node, or None if all nodes use all GPUs.

    All nodes use all GPUs if there is only one node, or if there are too few GPUs.

    >>> gpus_of_node(("0", "1", "2", "3"), node=1, nodes=2, per_node=2)
    ('2', '3')
    """
    if nodes < 2 or per_node < 1 or len(gpus) < nodes * per_node:
        return None
    return gpus[node * per_node : (node + 1) * per_node]
