"""The cgroup tree that contains every process of the cluster, and no other: `down` finds the processes by it.

A process cannot leave its cgroup by forking or by losing its parent, so recorded process ids are not needed, and the
same call cleans up after a start that crashed. Supports the unified hierarchy (cgroup v2) and the separate ones (v1):
there, processes are tracked in the `pids` hierarchy, and the kubelets' roots exist in every hierarchy.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from .layout import NAME, Node, TestbedError

ROOT = Path("/sys/fs/cgroup")
# Processes of the control plane and of the nodes; a leaf, as cgroup v2 requires.
SYSTEM = f"{NAME}/system"


def is_unified() -> bool:
    """Whether this machine has cgroup v2 only."""
    return (ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    if is_unified():
        return [ROOT]
    mounted = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    # A hybrid system also mounts a v2 tree without controllers; container runtimes create groups in it, too.
    return sorted({Path(fields[1]) for fields in mounted if fields[2] in ("cgroup", "cgroup2")})


def _tracking() -> Path:
    tracking = ROOT if is_unified() else ROOT / "pids"
    if not tracking.is_dir():
        raise TestbedError(f"no pids cgroup hierarchy at {tracking}; mount cgroup v2, or v1 with the pids controller")
    return tracking


def processes_file() -> Path:
    """The file to which a process writes its id to join the cluster's cgroup."""
    return _tracking() / SYSTEM / "cgroup.procs"


def create(nodes: tuple[Node, ...]) -> None:
    """Creates the cluster's cgroups: one for the test bed's processes, and one per node as the kubelet's root."""
    for hierarchy in _hierarchies():
        for name in (NAME, SYSTEM, *(node.cgroup for node in nodes)):
            group = hierarchy / name
            group.mkdir(exist_ok=True)
            # In cpuset v1 a new group has no CPUs and no memory nodes, and accepts no process without them.
            for knob in ("cpuset.cpus", "cpuset.mems"):
                if not is_unified() and (group / knob).exists() and not (group / knob).read_text().strip():
                    (group / knob).write_text((group.parent / knob).read_text())
    if is_unified():
        _enable_controllers()


def _enable_controllers() -> None:
    """Enables the controllers that the kubelet requires of its root (cgroup v2).

    Controllers that systemd had not enabled at the top stay enabled after `down`; that limits nothing.
    """
    for directory in (ROOT, ROOT / NAME):
        for controller in ("cpu", "cpuset", "io", "memory", "pids", "hugetlb"):
            # One by one: the kernel rejects a whole list if it lacks one of the controllers.
            with suppress(OSError):
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def processes(name: str = NAME) -> set[int]:
    """Process ids in a cgroup and all groups below it; empty if the cgroup does not exist."""
    found: set[int] = set()
    for directory, _, _ in os.walk(_tracking() / name):
        # A container's group may be removed during the walk.
        with suppress(FileNotFoundError, OSError):
            found.update(int(line) for line in (Path(directory) / "cgroup.procs").read_text().split())
    return found


def kill(name: str = NAME, timeout: float = 20.0) -> int:
    """Sends SIGKILL to every process below a cgroup until none is left.

    Args:
        name: path of the cgroup below the hierarchy's root.
        timeout: seconds to wait for the last process.

    Returns:
        The number of processes killed.

    Raises:
        TestbedError: a process did not die in time (uninterruptible sleep); the message contains its id.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout
    while left := processes(name):
        _thaw(name)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        if time.monotonic() > deadline:
            raise TestbedError(f"processes {sorted(left)} of {name} do not die; inspect /proc/PID/stack and retry")
        time.sleep(0.02)
    return len(killed)


def _thaw(name: str) -> None:
    """Thaws the processes below a cgroup: runc may have been killed while it had frozen a container temporarily."""
    for top, knob, value in ((ROOT / "freezer", "freezer.state", "THAWED"), (ROOT, "cgroup.freeze", "0")):
        for directory, _, _ in os.walk(top / name):
            with suppress(OSError):  # the file does not exist, or the group has been removed
                (Path(directory) / knob).write_text(value)


def remove(timeout: float = 10.0) -> None:
    """Removes the tree, which must be empty, from every hierarchy.

    Raises:
        TestbedError: a group is still busy after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    for hierarchy in _hierarchies():
        while (hierarchy / NAME).is_dir():
            for directory, _, _ in os.walk(hierarchy / NAME, topdown=False):
                with suppress(OSError):
                    Path(directory).rmdir()
            if not (hierarchy / NAME).is_dir():
                break
            if time.monotonic() > deadline:
                raise TestbedError(f"cgroup {hierarchy / NAME} is busy; check whether one of your processes is in it")
            time.sleep(0.05)
