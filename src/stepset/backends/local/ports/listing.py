"""Lists the ports of a local run that other hosts can reach. Used if the system cannot confine the ports.

`exposed_ports` is a pure function.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepset.frameworks.common import MASTER
from stepset.plan.model import LaunchPlan

# For each framework, describes the programs that listen on every address. The first string describes the programs that
# listen on the port of the plan (MASTER). The second string describes the programs that listen on ports that the system
# assigns. Measured with torch 2.15, DeepSpeed 0.19.8, JAX 0.10.2, XGBoost 3.2, Open MPI 4.1 and 5.0 (docs/security.md).
_STORE = "the store of node 0"
_AT_ALL_ADDRESSES: Mapping[str, tuple[str, str]] = {
    "torch": (_STORE, "the store of an elastic world's ranks"),
    "torchtune": (_STORE, ""),
    "deepspeed": (_STORE, ""),
    "jax": ("the coordinator", ""),
    "xgboost": ("", "the workers"),
}
_MPI = "mpirun, its daemons and the ranks"


def exposed_ports(framework: str, plan: LaunchPlan, ports: Mapping[str, int], obstacle: str) -> tuple[str, ...]:
    """Returns a note that lists the ports that other hosts can reach. Returns an empty tuple if there are none.

    Args:
        framework: the framework of the job.
        ports: the port numbers, by the name of the port.
        obstacle: why the ports cannot be confined to this machine.
    """
    fixed, assigned = ("", _MPI) if plan.ssh is not None else _AT_ALL_ADDRESSES.get(framework, ("", ""))
    listed = [f"{ports[MASTER]} at all addresses ({fixed})"] if fixed and MASTER in ports else []
    listed += [f"ports that the system assigns, at all addresses ({assigned})"] if assigned else []
    if not listed:
        return ()
    return (
        f"ports: other hosts can reach {' and '.join(listed)}, because {obstacle}; run on a network that you trust, or"
        " let a firewall block them",
    )
