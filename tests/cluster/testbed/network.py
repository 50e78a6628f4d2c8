"""Namespaces and links: one for the control plane, one per node, joined by a bridge that the host cannot see.

Called by `lifecycle` and `node`. The bridge is in the control plane's network namespace, so the host's firewall,
forwarding and bridge settings play no part, and the only thing on the host is one end of a veth pair. Links and
namespaces disappear by themselves with the last process in them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import process
from .layout import (
    BRIDGE,
    CLUSTER_NET_BITS,
    CONTROL_ADDRESS,
    HOST_ADDRESS,
    HOST_LINK,
    POD_NET,
    SERVICE_NET,
    Node,
    TestbedError,
)

CONTROL = "control"


def holder(node: Node) -> str:
    """Name of the process that holds a node's namespaces open."""
    return f"{node.name}-namespace"


def check_free() -> None:
    """Refuse to start where the host already routes to one of the cluster's networks.

    Raises:
        TestbedError: names the route in the way.
    """
    networks = (f"{CONTROL_ADDRESS.rpartition('.')[0]}.0/{CLUSTER_NET_BITS}", POD_NET, SERVICE_NET)
    for network in networks:
        route = process.run(["ip", "route", "show", "root", network]).strip()
        if route:
            raise TestbedError(f"this machine already has a route inside {network}: {route.splitlines()[0]}")


def create_control(nodes: tuple[Node, ...]) -> None:
    """Make the control plane's namespace, the bridge in it, and the host's way there."""
    pid = _new_namespace(CONTROL)
    script = f"""
        ip link set lo up
        ip link add {BRIDGE} type bridge
        ip address add {CONTROL_ADDRESS}/{CLUSTER_NET_BITS} dev {BRIDGE}
        ip link set {BRIDGE} up
    """
    script += "".join(f"ip route add {node.pod_net} via {node.address}\n" for node in nodes)
    process.run(["sh", "-ec", script], inside=CONTROL)
    process.run(["ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", "host", "netns", str(pid)])
    process.run(["ip", "link", "set", "host", "master", BRIDGE, "up"], inside=CONTROL)
    process.run(["ip", "address", "add", f"{HOST_ADDRESS}/{CLUSTER_NET_BITS}", "dev", HOST_LINK])
    process.run(["ip", "link", "set", HOST_LINK, "up"])
    for node in nodes:
        process.run(["ip", "route", "add", node.pod_net, "via", node.address, "dev", HOST_LINK])


def create_node(node: Node, nodes: tuple[Node, ...]) -> None:
    """Make a node's namespace with its link to the bridge and its routes to the other nodes' pods."""
    _new_namespace(holder(node))
    pid = str(process.pid_of(holder(node)))
    process.run(["ip", "link", "add", node.name, "type", "veth", "peer", "name", "eth0", "netns", pid], inside=CONTROL)
    process.run(["ip", "link", "set", node.name, "master", BRIDGE, "up"], inside=CONTROL)
    script = f"""
        ip link set lo up
        ip address add {node.address}/{CLUSTER_NET_BITS} dev eth0
        ip link set eth0 up
        echo 1 >/proc/sys/net/ipv4/ip_forward
        # Service addresses need some route for kube-proxy's rules to see their packets.
        ip route add {SERVICE_NET} via {CONTROL_ADDRESS}
    """
    others = (other for other in nodes if other != node)
    script += "".join(f"ip route add {other.pod_net} via {other.address}\n" for other in others)
    process.run(["sh", "-ec", script], inside=holder(node))


def set_link(node: Node, *, up: bool) -> None:
    """Cut a node off from everything, or join it again: its port on the bridge goes down or up."""
    process.run(["ip", "link", "set", node.name, "up" if up else "down"], inside=CONTROL)


def remove_host_link() -> None:
    """Remove the host's end, should its namespace have outlived its processes for a moment."""
    if Path("/sys/class/net", HOST_LINK).exists():
        subprocess.run(["ip", "link", "delete", HOST_LINK], capture_output=True)


def _new_namespace(name: str) -> int:
    # Private propagation: no mount made inside is ever seen on the host.
    command = ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"]
    pid = process.start(name, command)
    own = Path("/proc/self/ns/net").readlink()

    def entered() -> bool:
        proc = Path(f"/proc/{pid}")
        return (proc / "comm").read_text().strip() == "sleep" and (proc / "ns/net").readlink() != own

    process.wait(f"namespace {name}", entered, timeout=10, needs=[name])
    return pid
