"""Faults made where they happen: a kubelet that dies, a node that loses power, a network cable that is pulled.

Called by the cluster tests and by `__main__`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from . import cgroups, controlplane, network, node, process
from .layout import Choice, Node, TestbedError


def node_named(choice: Choice, name: str) -> Node:
    """A node of the running cluster by its name.

    Raises:
        TestbedError: there is no such node.
    """
    for worker in choice.worker_nodes:
        if worker.name == name:
            return worker
    raise TestbedError(f"no node {name!r}; there are {', '.join(worker.name for worker in choice.worker_nodes)}")


def stop_kubelet(choice: Choice, worker: Node) -> None:
    """Kill the kubelet: its containers run on, its node becomes Unknown after about 14 s."""
    process.stop(f"{worker.name}-kubelet")


def start_kubelet(choice: Choice, worker: Node) -> None:
    """Start the kubelet again; it finds its containers."""
    node.start_kubelet(worker, choice)


def freeze_kubelet(choice: Choice, worker: Node) -> None:
    """Stop the kubelet's clock (SIGSTOP): connections stay open and nothing is answered."""
    _signal(worker, signal.SIGSTOP)


def thaw_kubelet(choice: Choice, worker: Node) -> None:
    """Let a frozen kubelet go on (SIGCONT)."""
    _signal(worker, signal.SIGCONT)


def cut_network(choice: Choice, worker: Node) -> None:
    """Take the node's link down: no API server, no DNS, no pods of other nodes; its processes run on."""
    network.set_link(worker, up=False)


def join_network(choice: Choice, worker: Node) -> None:
    """Bring the node's link up again."""
    network.set_link(worker, up=True)


def power_off(choice: Choice, worker: Node) -> None:
    """Kill kubelet and every container of the node at once, as a power cut does; `start_kubelet` powers it on."""
    process.stop(f"{worker.name}-kubelet")
    cgroups.kill(worker.cgroup)


def set_gpus(choice: Choice, worker: Node, count: int, resource: str = "nvidia.com/gpu") -> None:
    """Let the node advertise accelerators that are only counted: nothing of them reaches a container."""
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
