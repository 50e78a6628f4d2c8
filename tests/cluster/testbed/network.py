"""Network namespaces of the control plane and of each node, joined by a bridge that the host cannot see.

The bridge is in the control plane's network namespace, so the host's firewall, forwarding and bridge settings have no
effect, and the host only has one end of a veth pair. The kernel removes links and namespaces with their last process.
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
    """Name of the process that keeps a node's namespaces open."""
    return f"{node.name}-namespace"


def check_free() -> None:
    """Checks that the host has no route into the cluster's networks.

    Raises:
        TestbedError: the host has such a route; the message names it.
    """
    networks = (f"{CONTROL_ADDRESS.rpartition('.')[0]}.0/{CLUSTER_NET_BITS}", POD_NET, SERVICE_NET)
    for network in networks:
        route = process.run(["ip", "route", "show", "root", network]).strip()
        if route:
            raise TestbedError(f"this machine already has a route inside {network}: {route.splitlines()[0]}")


def create_control(nodes: tuple[Node, ...]) -> None:
    """Creates the control plane's namespace, the bridge in it, and the host's link to it."""
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
    """Creates a node's namespace, its link to the bridge, and its routes to the other nodes' pods."""
    _new_namespace(holder(node))
    pid = str(process.pid_of(holder(node)))
    process.run(["ip", "link", "add", node.name, "type", "veth", "peer", "name", "eth0", "netns", pid], inside=CONTROL)
    process.run(["ip", "link", "set", node.name, "master", BRIDGE, "up"], inside=CONTROL)
    script = f"""
        ip link set lo up
        ip address add {node.address}/{CLUSTER_NET_BITS} dev eth0
        ip link set eth0 up
        echo 1 >/proc/sys/net/ipv4/ip_forward
        # Without a route to service addresses, kube-proxy's rules do not see their packets.
        ip route add {SERVICE_NET} via {CONTROL_ADDRESS}
    """
    others = (other for other in nodes if other != node)
    script += "".join(f"ip route add {other.pod_net} via {other.address}\n" for other in others)
    process.run(["sh", "-ec", script], inside=holder(node))


def set_link(node: Node, *, up: bool) -> None:
    """Sets a node's port on the bridge up or down."""
    process.run(["ip", "link", "set", node.name, "up" if up else "down"], inside=CONTROL)


def remove_host_link() -> None:
    """Removes the host's end of the veth pair, if the kernel has not removed it yet."""
    if Path("/sys/class/net", HOST_LINK).exists():
        subprocess.run(["ip", "link", "delete", HOST_LINK], capture_output=True)


def _new_namespace(name: str) -> int:
    # Private propagation: mounts in the namespace are not visible on the host.
    command = ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"]
    pid = process.start(name, command)
    own = Path("/proc/self/ns/net").readlink()

    def entered() -> bool:
        proc = Path(f"/proc/{pid}")
        return (proc / "comm").read_text().strip() == "sleep" and (proc / "ns/net").readlink() != own

    process.wait(f"namespace {name}", entered, timeout=10, needs=[name])
    return pid
