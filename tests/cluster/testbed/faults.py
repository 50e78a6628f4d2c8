"""Faults of nodes: a kubelet that is killed or frozen, a power failure, a cut network link."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from . import cgroups, controlplane, network, node, process
from .layout import Choice, Node, TestbedError


def node_named(choice: Choice, name: str) -> Node:
    """Returns a node of the running cluster by its name.

    Raises:
        TestbedError: the cluster has no such node.
    """
    for worker in choice.worker_nodes:
        if worker.name == name:
            return worker
    raise TestbedError(f"no node {name!r}; there are {', '.join(worker.name for worker in choice.worker_nodes)}")


def stop_kubelet(choice: Choice, worker: Node) -> None:
    """Kills the kubelet: its containers continue, and its node becomes Unknown after about 14 s."""
    process.stop(f"{worker.name}-kubelet")


def start_kubelet(choice: Choice, worker: Node) -> None:
    """Starts the kubelet again; it finds its containers."""
    node.start_kubelet(worker, choice)


def freeze_kubelet(choice: Choice, worker: Node) -> None:
    """Stops the kubelet with SIGSTOP: connections stay open, and requests are not answered."""
    _signal(worker, signal.SIGSTOP)


def thaw_kubelet(choice: Choice, worker: Node) -> None:
    """Continues a frozen kubelet (SIGCONT)."""
    _signal(worker, signal.SIGCONT)


def cut_network(choice: Choice, worker: Node) -> None:
    """Takes the node's link down: no API server, no DNS, no pods of other nodes; its processes continue."""
    network.set_link(worker, up=False)


def join_network(choice: Choice, worker: Node) -> None:
    """Brings the node's link up again."""
    network.set_link(worker, up=True)


def power_off(choice: Choice, worker: Node) -> None:
    """Kills the kubelet and every container of the node, as a power failure does; `start_kubelet` ends the fault."""
    process.stop(f"{worker.name}-kubelet")
    cgroups.kill(worker.cgroup)


def set_gpus(choice: Choice, worker: Node, count: int, resource: str = "nvidia.com/gpu") -> None:
    """Lets the node advertise accelerators that exist only as a number: containers get no device."""
    amount = {resource: str(count)}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    controlplane.kubectl(choice, "patch", "node", worker.name, "--subresource=status", "--type=merge", "--patch", patch)


FAULTS: dict[str, Callable[[Choice, Node], None]] = {
    "stop-kubelet": stop_kubelet,
    "start-kubelet": start_kubelet,
    "freeze-kubelet": freeze_kubelet,
    "thaw-kubelet": thaw_kubelet,
    "cut-network": cut_network,
    "join-network": join_network,
    "power-off": power_off,
}


def _signal(worker: Node, number: signal.Signals) -> None:
    if not process.signal_process(f"{worker.name}-kubelet", number):
        raise TestbedError(f"the kubelet of {worker.name} is not running")
