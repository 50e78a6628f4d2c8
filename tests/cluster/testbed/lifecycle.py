"""Starts and stops the cluster, and reports its status.

`up` first removes what an earlier start left behind; `down` does not depend on how far a start got.
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

# Bytes of disk space that a cluster uses during the tests.
DISK_SPACE = 1 << 30


def up(choice: Choice) -> float:
    """Starts the cluster; first builds the binaries that are not in the cache.

    Args:
        choice: versions and number of nodes; a complete running cluster of the same choice is not changed.

    Returns:
        Seconds that the start took, without the build; 0 if the cluster was running already.

    Raises:
        TestbedError: a requirement is missing or a step failed; the processes that were started are stopped again.
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
    """Stops the cluster and removes all its files except the binary cache.

    Raises:
        TestbedError: the user is not root, or something cannot be removed; the message names it.
    """
    packages.require_root()
    with _locked():
        _remove_everything()
        LOCK.unlink()


def running() -> Choice | None:
    """Returns the choice of the running cluster; None if none is running."""
    try:
        choice = Choice(**json.loads(CHOICE_FILE.read_text()))
    except (FileNotFoundError, json.JSONDecodeError, TypeError, PermissionError):
        return None
    return choice if process.pid_of("kube-apiserver") else None


def require_running() -> Choice:
    """Returns the choice of the running cluster.

    Raises:
        TestbedError: no cluster is running.
    """
    choice = running()
    if choice is None:
        raise TestbedError("no cluster is up; run `make cluster`")
    return choice


def is_whole(choice: Choice) -> bool:
    """Whether this version of the test bed started the cluster, all its processes run, and every node is Ready.

    Waits up to 30 seconds for nodes that are not Ready.

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
    """The state of every process that was started, by name: its id, or the last line that it wrote before it ended."""
    names = _processes()
    state = {}
    for name in names:
        pid = process.pid_of(name)
        state[name] = f"running, pid {pid}" if pid else f"stopped; last line: {process.last_line(name)}"
    return state


def _start(choice: Choice) -> None:
    nodes = choice.worker_nodes
    _check_disk_space()
    network.check_free()
    STATE.mkdir(mode=0o755)
    CONFIG.mkdir()
    cgroups.create(nodes)
    network.create_control(nodes)
    pki.create(nodes)
    pki.kubeconfig("admin", KUBECONFIG)
    controlplane.start_etcd()
    controlplane.start_api_server(choice)
    # The API server takes some seconds to start; the nodes' runtimes start in the meantime.
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


def _check_disk_space() -> None:
    """Raises TestbedError if the disk has too little space."""
    disk = shutil.disk_usage(STATE.parent)
    # With less than 1 % left the kubelets accept no pods (`evictionHard` in node.py).
    needed = DISK_SPACE + disk.total // 50
    if disk.free < needed:
        raise TestbedError(
            f"{STATE.parent} has {disk.free >> 20} MiB left, but a cluster needs {needed >> 20}; free some space there"
        )


def _processes() -> list[str]:
    return sorted(path.name for path in PIDS.iterdir()) if PIDS.is_dir() else []


def _remove_everything() -> None:
    cgroups.kill()
    network.remove_host_link()
    cgroups.remove()
    process.wait(f"the removal of link {HOST_LINK}", lambda: not Path("/sys/class/net", HOST_LINK).exists(), timeout=10)
    # All mounts were private to namespaces that have ended. rmtree below a mount that still exists would delete the
    # machine's own files, so this is checked.
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [point for point in mounted if Path(point).is_relative_to(STATE)]
    if below:
        raise TestbedError(f"{below[0]} is still mounted; unmount it (umount {below[0]}) and retry")
    if STATE.exists():
        shutil.rmtree(STATE)


def _keep_logs() -> None:
    """Saves the logs of a failed start in a directory that `down` and the next `up` do not delete."""
    saved = build.cache_root() / "failed-start-logs"
    shutil.rmtree(saved, ignore_errors=True)
    if not (STATE / "log").is_dir():
        return
    try:
        shutil.copytree(STATE / "log", saved)
        print(f"logs of the failed start: {saved}", flush=True)
    except (OSError, shutil.Error) as error:
        print(f"logs of the failed start could not be saved: {error}", flush=True)


@contextmanager
def _locked() -> Iterator[None]:
    """Allows one `up` or `down` at a time on this machine."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # `down` removes the file; a process that waited for it then holds a lock that the next one does not see.
            if LOCK.exists() and os.path.samestat(LOCK.stat(), os.fstat(lock.fileno())):
                yield
                return


def _digest() -> str:
    """A digest of the test bed's code; `up` restarts a cluster that another version started."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()
