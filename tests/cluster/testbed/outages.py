"""Faults of the control plane, and everything put back: who is killed, frozen or slow is a process of its own here.

Called by the cluster tests that ask what stepset makes of them.
"""

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

# Asked from within, because etcd listens on the control plane's own loopback.
_COMPACT = """
import base64, json, sys, urllib.request
def ask(path, **body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request, timeout=30))
revision = ask("/v3/kv/range", key=base64.b64encode(b"none").decode())["header"]["revision"]
ask("/v3/kv/compaction", revision=revision, physical=True)
print(revision)
"""


def stop(name: str, number: signal.Signals = signal.SIGTERM) -> None:
    """End a process of the control plane; `start` brings it back.

    Args:
        name: such as `API_SERVER`.
        number: how; SIGTERM lets it say goodbye to whoever is connected.
    """
    process.stop(name, number, timeout=90)


def start(choice: Choice, name: str) -> None:
    """Start a process of the control plane again, and wait until it serves.

    With the API server the controllers are started anew, which would be back by themselves only after a minute.
    """
    starters = _starters(choice)
    starters[name]()
    if name == API_SERVER:
        for other in (CONTROLLER_MANAGER, SCHEDULER, JOBSET):
            stop(other, signal.SIGKILL)
            starters[other]()


def freeze(name: str) -> None:
    """Stop a process's clock (SIGSTOP): the kernel still answers for its connections, nobody reads them."""
    _signal(name, signal.SIGSTOP)


def thaw(name: str) -> None:
    """Let a frozen process go on (SIGCONT)."""
    _signal(name, signal.SIGCONT)


@contextmanager
def slow(name: str, frozen: float, awake: float) -> Iterator[None]:
    """Let a process work only now and then.

    Args:
        name: the process.
        frozen: seconds it stands still, again and again.
        awake: seconds it works between.
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
    """Let etcd forget every version of every object but the last; the version up to which it did."""
    return int(process.run([sys.executable, "-c", _COMPACT, controlplane.ETCD_URL], inside=network.CONTROL))


def mend(choice: Choice) -> list[str]:
    """Put back whatever is broken, and wait until every node is Ready.

    Args:
        choice: the running cluster's.

    Returns:
        What was broken.

    Raises:
        TestbedError: it cannot be mended.
    """
    found = []
    for worker in choice.worker_nodes:
        faults.join_network(choice, worker)
    for name, begin in _starters(choice).items():
        if process.pid_of(name) is None:
            found.append(name)
            begin()
        else:
            process.signal_process(name, signal.SIGCONT)
    controlplane.wait_api_ready()
    names = [f"node/{worker.name}" for worker in choice.worker_nodes]
    controlplane.kubectl(choice, "wait", "--for=condition=Ready", "--timeout=120s", *names)
    found += [f"taint {key} of {name}" for name, key in _taints(choice)]
    for name in names:
        with suppress(TestbedError):  # it has none
            controlplane.kubectl(choice, "taint", name, "node.kubernetes.io/out-of-service-")
    process.wait("the nodes' taints to go", lambda: not _taints(choice), _READY)
    return found


def _taints(choice: Choice) -> list[tuple[str, str]]:
    """Taints that Kubernetes gave the nodes because of something."""
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
    """How each process is started, in the order in which they need each other."""
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
