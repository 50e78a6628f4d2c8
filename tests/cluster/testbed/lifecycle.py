"""Up, down and status: the order in which everything else of the package is called.

Called by `__main__`. `up` always begins by removing what an earlier start left; `down` needs to know nothing about
how far a start came.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from . import build, cgroups, controllers, controlplane, image, network, node, packages, pki, process
from .layout import (
    CHOICE_FILE,
    CONFIG,
    HOST_LINK,
    KUBECONFIG,
    LOCK,
    PIDS,
    STARTED_BY_FILE,
    STARTED_FILE,
    STATE,
    Choice,
    TestbedError,
)

# Bytes that a cluster takes in the course of the tests.
ROOM = 1 << 30


def up(choice: Choice) -> float:
    """Bring the cluster up, building what the cache lacks.

    Args:
        choice: versions and number of nodes; a running cluster of the same choice is left as it is if it is whole.

    Returns:
        Seconds it took, without the building.

    Raises:
        TestbedError: what is missing or failed; what was started is taken down again.
    """
    packages.require_root()
    packages.ensure()
    with _locked():
        if running() == choice and is_whole(choice):
            return 0.0
        build.ensure(choice.components)
        _remove_everything()
        started = time.monotonic()
        try:
            _start(choice)
        except BaseException as error:
            _keep_logs()
            _remove_everything()
            if isinstance(error, OSError):  # a full disk, no more processes
                raise TestbedError(f"{error.filename or STATE}: {error.strerror or error}") from error
            raise
        return time.monotonic() - started


def down() -> None:
    """Take the cluster down and remove every trace of it except the binary cache.

    Raises:
        TestbedError: not root, or something cannot be removed; the message says what.
    """
    packages.require_root()
    with _locked():
        _remove_everything()
        LOCK.unlink()


def running() -> Choice | None:
    """The choice of the cluster that is up, None when there is none."""
    try:
        choice = Choice(**json.loads(CHOICE_FILE.read_text()))
    except (FileNotFoundError, json.JSONDecodeError, TypeError, PermissionError):
        return None
    return choice if process.pid_of("kube-apiserver") else None


def require_running() -> Choice:
    """The choice of the running cluster.

    Raises:
        TestbedError: none is running.
    """
    choice = running()
    if choice is None:
        raise TestbedError("no cluster is up; run `make cluster`")
    return choice


def is_whole(choice: Choice) -> bool:
    """Whether this version of the test bed started the cluster, all of it still runs, and every node is Ready.

    A node that becomes Ready again is awaited.

    Args:
        choice: the running cluster's.
    """
    if not STARTED_BY_FILE.exists() or STARTED_BY_FILE.read_text() != _digest():
        return False
    if not STARTED_FILE.exists() or any(process.pid_of(name) is None for name in STARTED_FILE.read_text().split()):
        return False
    try:
        nodes = [f"node/{worker.name}" for worker in choice.worker_nodes]
        controlplane.kubectl(choice, "wait", "--for=condition=Ready", "--timeout=30s", *nodes)
    except TestbedError:
        return False
    return controlplane.is_ready()


def status() -> dict[str, str]:
    """State of every process that was started, by name: its id, or what it said last before it died."""
    names = _processes()
    state = {}
    for name in names:
        pid = process.pid_of(name)
        state[name] = f"running, pid {pid}" if pid else f"stopped; last line: {process.last_line(name)}"
    return state


def _start(choice: Choice) -> None:
    nodes = choice.worker_nodes
    _check_room()
    network.check_free()
    STATE.mkdir(mode=0o755)
    CONFIG.mkdir()
    cgroups.create(nodes)
    network.create_control(nodes)
    pki.create(nodes)
    pki.kubeconfig("admin", KUBECONFIG)
    controlplane.start_etcd()
    controlplane.start_api_server(choice)
    # The API server needs some seconds; the nodes' runtimes come up meanwhile.
    archive = image.build()
    for worker in nodes:
        network.create_node(worker, nodes)
        node.prepare(worker)
        node.start_containerd(worker)
    for worker in nodes:
        node.load_images(worker, archive)
    controlplane.wait_api_ready()
    controlplane.start_controller_manager(choice)
    controlplane.start_scheduler(choice)
    controlplane.start_dns()
    for worker in nodes:
        node.start_kubelet(worker, choice)
        node.start_kube_proxy(worker, choice)
    controllers.install(choice)
    names = [f"node/{worker.name}" for worker in nodes]
    controlplane.kubectl(choice, "wait", "--for=create", "--timeout=180s", *names)
    controlplane.kubectl(choice, "wait", "--for=condition=Ready", "--timeout=180s", *names)
    controlplane.kubectl(choice, "wait", "--for=create", "--timeout=180s", "serviceaccount/default", "-n", "default")
    STARTED_FILE.write_text("\n".join(_processes()))
    STARTED_BY_FILE.write_text(_digest())
    CHOICE_FILE.write_text(json.dumps(asdict(choice)))


def _check_room() -> None:
    """Refuse to start where the disk would soon be full."""
    disk = shutil.disk_usage(STATE.parent)
    # With less than 1 % left the kubelets would take no pods (`evictionHard` in node.py).
    needed = ROOM + disk.total // 50
    if disk.free < needed:
        raise TestbedError(
            f"{STATE.parent} has {disk.free >> 20} MiB left and a cluster needs {needed >> 20}; free some space there"
        )


def _processes() -> list[str]:
    return sorted(path.name for path in PIDS.iterdir()) if PIDS.is_dir() else []


def _remove_everything() -> None:
    cgroups.kill()
    network.remove_host_link()
    cgroups.remove()
    process.wait(f"link {HOST_LINK} to go", lambda: not Path("/sys/class/net", HOST_LINK).exists(), timeout=10)
    # All mounts were private to namespaces that died above. Deleting through one that is not would delete the
    # machine's own files, so this is checked and not assumed.
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [point for point in mounted if Path(point).is_relative_to(STATE)]
    if below:
        raise TestbedError(f"{below[0]} is still mounted; unmount it (umount {below[0]}) and retry")
    if STATE.exists():
        shutil.rmtree(STATE)


def _keep_logs() -> None:
    """Save the logs of a failed start where `down` and the next `up` do not delete them."""
    saved = build.cache_root() / "failed-start-logs"
    shutil.rmtree(saved, ignore_errors=True)
    if not (STATE / "log").is_dir():
        return
    try:
        shutil.copytree(STATE / "log", saved)
        print(f"logs of the failed start: {saved}", flush=True)
    except (OSError, shutil.Error) as error:
        print(f"logs of the failed start could not be kept: {error}", flush=True)


@contextmanager
def _locked() -> Iterator[None]:
    """One `up` or `down` at a time on a machine."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # `down` removes the file, and whoever waited for it then holds one that the next does not see.
            if LOCK.exists() and os.path.samestat(LOCK.stat(), os.fstat(lock.fileno())):
                yield
                return


def _digest() -> str:
    """A digest of the test bed's code: another version starts another cluster."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()
