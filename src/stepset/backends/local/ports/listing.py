"""Lists the ports of a local run that other hosts can reach. Used if the system cannot confine the ports.

`exposed_ports` is a pure function.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepset.frameworks import FRAMEWORKS
from stepset.frameworks.common import MASTER
from stepset.plan.model import LaunchPlan


def exposed_ports(framework: str, plan: LaunchPlan, ports: Mapping[str, int], obstacle: str) -> tuple[str, ...]:
    """Returns a note that lists the ports that other hosts can reach. Returns an empty tuple if there is no such port.

    Args:
        framework: the framework of the job.
        ports: the port numbers, by the name of the port.
        obstacle: why the ports cannot be confined to this machine.
    """
    fixed, assigned = FRAMEWORKS["mpi" if plan.ssh is not None else framework].listeners
    listed = [f"{ports[MASTER]} at all addresses ({fixed})"] if fixed and MASTER in ports else []
    listed += [f"ports that the system assigns, at all addresses ({assigned})"] if assigned else []
    if not listed:
        return ()
    return (
        f"ports: other hosts can reach {' and '.join(listed)}, because {obstacle}; run on a network that you trust, or"
        " let a firewall block them",
    )
