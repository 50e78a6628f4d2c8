"""The cgroup tree that holds every process of the cluster: how `down` finds them all, and only them.

A process cannot leave it by forking or by losing its parent, so nothing depends on process ids being remembered
rightly; a start that crashed half-way is cleaned by the same call. Works on the unified hierarchy (cgroup v2) and on
the split ones (v1), where processes are tracked in the `pids` hierarchy and the kubelet's roots exist in all of them.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from .layout import NAME, Node, TestbedError

ROOT = Path("/sys/fs/cgroup")
# Processes of the control plane and of the nodes; a leaf, as cgroup v2 wants it.
SYSTEM = f"{NAME}/system"


def is_unified() -> bool:
    """Whether this machine has cgroup v2 only."""
    return (ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    if is_unified():
        return [ROOT]
    mounted = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    # A hybrid system mounts an empty v2 tree too, in which container runtimes make groups all the same.
    return sorted({Path(fields[1]) for fields in mounted if fields[2] in ("cgroup", "cgroup2")})


def _tracking() -> Path:
    tracking = ROOT if is_unified() else ROOT / "pids"
    if not tracking.is_dir():
        raise TestbedError(f"no pids cgroup hierarchy at {tracking}; mount cgroup v2, or v1 with the pids controller")
    return tracking


def processes_file() -> Path:
    """The file a process writes its id to in order to belong to the cluster."""
    return _tracking() / SYSTEM / "cgroup.procs"


def create(nodes: tuple[Node, ...]) -> None:
    """Make the cluster's cgroups: one for our own processes, one per node for the kubelet to build below."""
    for hierarchy in _hierarchies():
        for name in (NAME, SYSTEM, *(node.cgroup for node in nodes)):
            group = hierarchy / name
            group.mkdir(exist_ok=True)
            # In cpuset v1 a new group has no cpus and no memory, and takes no process until it has.
            for knob in ("cpuset.cpus", "cpuset.mems"):
                if not is_unified() and (group / knob).exists() and not (group / knob).read_text().strip():
                    (group / knob).write_text((group.parent / knob).read_text())
    if is_unified():
        _enable_controllers()


def _enable_controllers() -> None:
    """Let groups below ours have what the kubelet checks its root for (cgroup v2).

    Controllers that systemd had not enabled at the top yet stay enabled after `down`; enabling limits nothing.
    """
    for directory in (ROOT, ROOT / NAME):
        for controller in ("cpu", "cpuset", "io", "memory", "pids", "hugetlb"):
            # One by one, because the kernel refuses all of a list for one it lacks.
            with suppress(OSError):
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def processes(name: str = NAME) -> set[int]:
    """Process ids in a cgroup and everything below it; empty when there is no such cgroup."""
    found: set[int] = set()
    for directory, _, _ in os.walk(_tracking() / name):
        # A container's group may vanish while it is walked.
        with suppress(FileNotFoundError, OSError):
            found.update(int(line) for line in (Path(directory) / "cgroup.procs").read_text().split())
    return found


def kill(name: str = NAME, timeout: float = 20.0) -> int:
    """SIGKILL every process below a cgroup until none is left.

    Args:
        name: path of the cgroup below the hierarchy's root.
        timeout: seconds to wait for the last of them.

    Returns:
        How many processes were killed.

    Raises:
        TestbedError: some did not die in time (uninterruptible sleep); their ids are in the message.
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
            raise TestbedError(f"processes {sorted(left)} of {name} do not die; look at /proc/PID/stack and retry")
        time.sleep(0.02)
    return len(killed)


def _thaw(name: str) -> None:
    """Let frozen processes below a cgroup go on: runc freezes a container for a moment, and may die in that."""
    for top, knob, value in ((ROOT / "freezer", "freezer.state", "THAWED"), (ROOT, "cgroup.freeze", "0")):
        for directory, _, _ in os.walk(top / name):
            with suppress(OSError):  # there is no such knob, or no such group any more
                (Path(directory) / knob).write_text(value)


def remove(timeout: float = 10.0) -> None:
    """Remove the emptied tree from every hierarchy.

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
                raise TestbedError(f"cgroup {hierarchy / NAME} is busy; is a process of yours in it?")
            time.sleep(0.05)
