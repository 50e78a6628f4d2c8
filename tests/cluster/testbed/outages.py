"""Faults of the control plane's processes, which can be killed, frozen or slowed, and their repair."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from . import controllers, controlplane, faults, network, node, process
from .layout import Choice, Node, TestbedError

API_SERVER, ETCD = "kube-apiserver", "etcd"
CONTROLLER_MANAGER, SCHEDULER, JOBSET = "kube-controller-manager", "kube-scheduler", "jobset"

_READY = 180.0

# Runs in the control plane's network namespace, because etcd listens on its loopback.
_COMPACT = """
import base64, json, sys, urllib.request
def post(path, **body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request, timeout=30))
revision = post("/v3/kv/range", key=base64.b64encode(b"none").decode())["header"]["revision"]
post("/v3/kv/compaction", revision=revision, physical=True)
print(revision)
"""


def stop(name: str, number: signal.Signals = signal.SIGTERM) -> None:
    """Ends a process of the control plane; `start` starts it again.

    Args:
        name: the process, such as `API_SERVER`.
        number: the signal; after SIGTERM the process closes its connections.
    """
    process.stop(name, number, timeout=90)


def start(choice: Choice, name: str) -> None:
    """Starts a process of the control plane again, and waits until it serves.

    With the API server the controllers are restarted, because they would take a minute to reconnect.
    """
    starters = _starters(choice)
    starters[name]()
    if name == API_SERVER:
        for other in (CONTROLLER_MANAGER, SCHEDULER, JOBSET):
            stop(other, signal.SIGKILL)
            starters[other]()


def freeze(name: str) -> None:
    """Stops a process with SIGSTOP: the kernel still acknowledges packets, but the process reads nothing."""
    _signal(name, signal.SIGSTOP)


def thaw(name: str) -> None:
    """Continues a frozen process (SIGCONT)."""
    _signal(name, signal.SIGCONT)


@contextmanager
def slow(name: str, frozen: float, awake: float) -> Iterator[None]:
    """Freezes a process repeatedly.

    Args:
        name: the process.
        frozen: seconds for which it is frozen each time.
        awake: seconds for which it runs in between.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            freeze(name)
            over.wait(frozen)
            thaw(name)
            over.wait(awake)

    rhythm = threading.Thread(target=beat, name=f"slow {name}", daemon=True)
    rhythm.start()
    try:
        yield
    finally:
        over.set()
        rhythm.join()


def compact_etcd() -> int:
    """Removes all versions of objects except the latest from etcd; returns the revision of the compaction."""
    return int(process.run([sys.executable, "-c", _COMPACT, controlplane.ETCD_URL], inside=network.CONTROL))


def repair(choice: Choice) -> list[str]:
    """Ends all faults, and waits until every node is Ready.

    Args:
        choice: the running cluster's.

    Returns:
        The processes that were not running, and the taints that were removed.

    Raises:
        TestbedError: a fault could not be ended.
    """
    found = []
    for worker in choice.worker_nodes:
        faults.join_network(choice, worker)
    for name, starter in _starters(choice).items():
        if process.pid_of(name) is None:
            found.append(name)
            starter()
        else:
            process.signal_process(name, signal.SIGCONT)
    controlplane.wait_api_ready()
    names = [f"node/{worker.name}" for worker in choice.worker_nodes]
    controlplane.kubectl(choice, "wait", "--for=condition=Ready", "--timeout=120s", *names)
    found += [f"taint {key} of {name}" for name, key in _taints(choice)]
    for name in names:
        with suppress(TestbedError):  # the node does not have this taint
            controlplane.kubectl(choice, "taint", name, "node.kubernetes.io/out-of-service-")
    process.wait("the removal of the nodes' taints", lambda: not _taints(choice), _READY)
    return found


def _taints(choice: Choice) -> list[tuple[str, str]]:
    """The taints with which Kubernetes marked faulty nodes: (node, key)."""
    nodes = json.loads(controlplane.kubectl(choice, "get", "nodes", "-o", "json"))["items"]
    own = {worker.name for worker in choice.worker_nodes}
    return [
        (each["metadata"]["name"], taint["key"])
        for each in nodes
        if each["metadata"]["name"] in own
        for taint in each["spec"].get("taints") or ()
        if taint["key"].startswith("node.kubernetes.io/")
    ]


def _starters(choice: Choice) -> dict[str, Callable[[], None]]:
    """The function that starts each process, in the order of their dependencies."""
    found: dict[str, Callable[[], None]] = {
        API_SERVER: partial(_start_api_server, choice),
        CONTROLLER_MANAGER: partial(controlplane.start_controller_manager, choice),
        SCHEDULER: partial(controlplane.start_scheduler, choice),
        "coredns": controlplane.start_dns,
    }
    for controller in controllers.selected(choice):
        found[controller.program] = partial(_start_controller, controller)
    for worker in choice.worker_nodes:
        found[f"{worker.name}-kubelet"] = partial(faults.start_kubelet, choice, worker)
        found[f"{worker.name}-kube-proxy"] = partial(_start_kube_proxy, worker, choice)
    return found


def _start_api_server(choice: Choice) -> None:
    controlplane.start_api_server(choice)
    controlplane.wait_api_ready()


def _start_controller(controller: controllers.Controller) -> None:
    controllers.start(controller)
    ready = partial(controllers.is_ready, controller)
    process.wait(f"{controller.program} to be ready", ready, _READY, [controller.program])


def _start_kube_proxy(worker: Node, choice: Choice) -> None:
    node.start_kube_proxy(worker, choice)


def _signal(name: str, number: signal.Signals) -> None:
    if not process.signal_process(name, number):
        raise TestbedError(f"{name} is not running")
