"""The signals that the agent handles, and functions that send signals to processes, their groups and descendants."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from stepset.agent.errors import IF_POSSIBLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal
else:
    try:
        import _signal as signal  # The module `signal` creates enums, which takes 8 ms in every rank.
    except ImportError:
        import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
HANDLED_SIGNALS = (*STOP_SIGNALS, *USER_SIGNALS, signal.SIGCHLD)
# The signal that stops the ranks of mpirun. If Open MPI gets SIGTERM, it kills the ranks 2 s later, even if they are
# saving. mpirun forwards SIGUSR1 to the ranks and continues to wait (Open MPI 4.1.4, MPICH 4.0.2, tested).
STOP_BY_MPIRUN = signal.SIGUSR1

LIFELINE_GRACE = 2.0  # seconds between SIGTERM and SIGKILL when the process that started the agent has ended

STOPPING = "stopping"
"""The file in the pod's directory that exists while the ranks of a stopped pod may save. No `rank` process exits before
the agent removes the file, because a launcher kills the other ranks when it detects the exit of a rank."""

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")


def forward_signal(pid: int, number: int) -> bool:
    """Sends a signal to a command, or to its process group if the command is a shell. Returns whether it is a shell.

    A shell does not forward signals. Other programs forward signals themselves if needed. If the data loaders of a
    training script got the signal, the script would fail while it writes its checkpoint.
    """
    try:
        shell = os.path.basename(os.readlink(f"/proc/{pid}/exe")) in SHELLS
    except OSError:
        shell = not sys.platform.startswith("linux")
    with IF_POSSIBLE:
        if shell:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    return shell


def kill_group(pid: int, number: int) -> None:
    """Sends a signal to a process group, if it exists."""
    with IF_POSSIBLE:
        os.killpg(pid, number)


def group_exists(pid: int) -> bool:
    """Returns whether a process group has any process."""
    with IF_POSSIBLE:
        os.killpg(pid, 0)
        return True
    return False


def kill(pids: Iterable[int]) -> None:
    """Sends SIGKILL to each process that exists."""
    for pid in pids:
        with IF_POSSIBLE:
            os.kill(pid, signal.SIGKILL)


def kill_data_loaders(group: int) -> None:
    """Kills the workers of torch's DataLoader in the process group of a terminated rank. They save nothing.

    torch gives each worker this name (2.15, torch/utils/data/_utils/worker.py).
    """
    kill(pid for pid, _, of_group, name in _processes() if of_group == group and name == b"pt_data_worker")


def descendants(root: int) -> list[int]:
    """Returns all running descendants of the process `root`. Without /proc, the result is empty."""
    children: dict[int, list[int]] = {}
    for pid, parent, _, _ in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _processes() -> Iterator[tuple[int, int, int, bytes]]:
    """Yields the PID, parent, process group and name of each running process. Without /proc, yields nothing."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                head, _, tail = file.read().rpartition(b") ")
            state, parent, group = tail.split()[:3]
        except (OSError, ValueError):  # The process has just terminated.
            continue
        if state not in (b"Z", b"X"):
            yield int(name), int(parent), int(group), head.partition(b"(")[2]
