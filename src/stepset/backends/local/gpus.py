"""Which of this machine's GPUs each simulated node sees.

Called by the environment: two nodes that both take GPU 0 as their first are refused by NCCL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpus(environ: Mapping[str, str], driver: Path = _DRIVER) -> tuple[str, ...]:
    """The GPUs a process with this environment sees, as CUDA_VISIBLE_DEVICES names them.

    Args:
        environ: the environment; what it names is believed.
        driver: where NVIDIA's driver lists a directory for each GPU.
    """
    if (named := environ.get(VISIBLE)) is not None:
        return tuple(word.strip() for word in named.split(",") if word.strip() not in ("", "-1"))
    try:
        return tuple(str(n) for n, _ in enumerate(driver.iterdir()))
    except OSError:
        return ()


def gpus_of_node(gpus: tuple[str, ...], node: int, nodes: int, per_node: int) -> tuple[str, ...] | None:
    """The GPUs of one node; None where they are not shared out: one node sees all, and too few are seen by all.

    Args:
        gpus: the machine's.
        node: the node's index.
        nodes: how many there are.
        per_node: GPUs each wants.

    >>> gpus_of_node(("0", "1", "2", "3"), node=1, nodes=2, per_node=2)
    ('2', '3')
    """
    if nodes < 2 or per_node < 1 or len(gpus) < nodes * per_node:
        return None
    return gpus[node * per_node : (node + 1) * per_node]
