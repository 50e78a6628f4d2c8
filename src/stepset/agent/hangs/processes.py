"""Reads /proc: the processes below a process, what each is, its state, and why it has no hook."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.hangs.hook import SIGNAL
from stepset.agent.signals import SHELLS, signal

MOST = 64  # processes of one rank
_MOST_FILES = 4096
_MOST_TASKS = 256
TICKS = os.sysconf("SC_CLK_TCK")
INTERPRETERS = ("python", "pypy")


class Process:
    """A running process.

    Args:
        about: the fields of /proc/PID/stat after the name.
    """

    def __init__(self, pid: int, name: str, about: list[str]) -> None:
        self.pid = pid
        self.name = name
        self.state = about[0]
        self.parent = int(about[1])
        self.seconds = (int(about[11]) + int(about[12])) / TICKS  # CPU time
        self.started = int(about[19])  # clock ticks since the boot
        self.kind = "child"


def running() -> dict[int, Process]:
    """Returns all running processes, by pid. Without /proc, the result is empty."""
    found = {}
    with IF_POSSIBLE:
        for pid in os.listdir("/proc"):
            process = pid.isdigit() and read_process(int(pid))
            if process:
                found[process.pid] = process
    return found


def read_process(pid: int, task: str = "") -> Process | None:
    """Returns a process, or None if it has terminated. If `task` is `task/TID/`, returns what a thread has used."""
    try:
        head, _, rest = _read(pid, task + "stat").rpartition(") ")
        process = Process(pid, head.partition("(")[2], rest.split())
    except (OSError, ValueError, IndexError):
        return None
    return None if process.state in "ZX" else process


def below(root: int, processes: dict[int, Process]) -> list[Process]:
    """Returns a process and its descendants, at most MOST, ordered by depth and then by start."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found = [processes[root]] if root in processes else []
    for process in found:
        if len(found) < MOST:
            found += sorted(children.get(process.pid, ()), key=lambda each: (each.started, each.pid))
    return found[:MOST]


def name_kinds(processes: list[Process]) -> list[Process]:
    """Sets the kind of each process of a rank. The first process is the root of the others.

    The program of a rank may be a shell that starts Python. Then the shell is a `launcher`, and Python is the `rank`.
    """
    at = 0
    while at + 1 < len(processes) and processes[at].name in SHELLS and processes[at + 1].parent == processes[at].pid:
        processes[at].kind = "launcher"
        at += 1
    for process in processes[at:]:
        process.kind = "rank" if process is processes[at] else "child"
        words = arguments(process.pid)
        # A forked process keeps the arguments of its parent. multiprocessing also starts Python again.
        starts = any("multiprocessing" in word and "_tracker" not in word for word in words)
        if process.kind == "child" and words and (words == arguments(process.parent) or starts):
            process.kind = "worker"
    return processes


def arguments(pid: int) -> list[str]:
    """Returns the command line of a process, or an empty list."""
    with IF_POSSIBLE:
        return _read(pid, "cmdline").split("\0")[:-1]
    return []


def environment(pid: int) -> dict[str, str]:
    """Returns the variables with which a process was started."""
    with IF_POSSIBLE:
        return dict(entry.partition("=")[::2] for entry in _read(pid, "environ").split("\0"))
    return {}


def waits_for(pid: int) -> dict[str, object]:
    """Returns the function of the kernel and the number of the system call in which a process waits, if readable."""
    found: dict[str, object] = {}
    with IF_POSSIBLE:
        found["wchan"] = _read(pid, "wchan")[:64]
    with IF_POSSIBLE:
        number = _read(pid, "syscall").split(" ")[0]
        if number.isdigit():
            found["syscall"] = int(number)
    return found


def usage(pid: int) -> tuple[int, int]:
    """Returns the context switches of a process's main thread, and the bytes that the process has read and written.

    During a long write, only the number of bytes in the page cache grows.
    """
    size = 0
    with IF_POSSIBLE:
        for line in _read(pid, "io").split("\n"):
            if line.startswith(("rchar:", "wchar:", "write_bytes:")):
                size += int(line.split()[1])
    return _switches(pid, pid), size


def switches_of_threads(pid: int, names: Iterable[str]) -> int:
    """Returns the context switches of the threads that a process has started in Python, without the main thread.

    Libraries such as NCCL name their threads. Up to 3.13, a thread of Python has the name of the process.

    Args:
        names: the names of the Python threads, as Python 3.14 reports them.
    """
    found = 0
    with IF_POSSIBLE:
        known = {*names, _read(pid, "comm").strip()}
        for task in os.listdir(f"/proc/{pid}/task")[:_MOST_TASKS]:
            with IF_POSSIBLE:
                if int(task) != pid and _read(pid, f"task/{task}/comm").strip() in known:
                    found += _switches(pid, int(task))
    return found


def _switches(pid: int, task: int) -> int:
    with IF_POSSIBLE:
        lines = _read(pid, f"task/{task}/status").split("\n")
        return sum(int(line.split()[1]) for line in lines if "_ctxt_switches:" in line)
    return 0


def send(process: Process, number: int) -> None:
    """Sends a signal to a process that handles the signal.

    If the process has terminated, and another process has its PID, no process gets the signal.

    Raises:
        OSError: the process cannot get signals from this process.
    """
    try:
        fd = os.pidfd_open(process.pid)  # Python 3.9, Linux 5.3
    except (AttributeError, OSError):
        fd = -1
    try:
        current = read_process(process.pid)
        if current and current.started == process.started and handles_signal(process.pid):
            if fd >= 0:
                signal.pidfd_send_signal(fd, number)
            else:
                os.kill(process.pid, number)
    finally:
        if fd >= 0:
            os.close(fd)


def handles_signal(pid: int) -> bool:
    """Returns whether a process has a handler for the hook's signal. Otherwise, the signal would terminate it."""
    return bool(_mask(pid, "SigCgt:"))


def is_in_handler(pid: int) -> bool:
    """Returns whether the hook's signal waits for a process, or its main thread is in the handler."""
    return bool(_mask(pid, "ShdPnd:") or _mask(pid, "SigBlk:"))


def _mask(pid: int, name: str) -> int:
    with IF_POSSIBLE:
        for line in _read(pid, "status").split("\n"):
            if line.startswith(name):
                return int(line.split()[1], 16) >> (SIGNAL - 1) & 1
    return 0


def files(pid: int) -> Iterable[tuple[int, str]]:
    """Yields the descriptor and the name of each open file without a name on disk."""
    with IF_POSSIBLE:
        for fd in os.listdir(f"/proc/{pid}/fd")[:_MOST_FILES]:
            with IF_POSSIBLE:
                path = os.readlink(f"/proc/{pid}/fd/{fd}")
                if path.endswith(" (deleted)") and stat.S_ISREG(os.stat(f"/proc/{pid}/fd/{fd}").st_mode):
                    yield int(fd), path[: -len(" (deleted)")]


def why_no_hook(pid: int, directory: str) -> str:
    """Returns why a process has no hook. `directory` is that of the hook."""
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError as error:
        return f"its program cannot be read: {error.strerror}"
    if not program.startswith(INTERPRETERS):
        return f"{program} is not Python"
    words = arguments(pid)[1:]
    while words and words[0].startswith("-") and not words[0].startswith(("--", "-c", "-m")):
        word = words.pop(0)
        for option in "ISE":
            if option in word.partition("X")[0].partition("W")[0]:
                return f"Python runs with -{option} and ignores the hook"
        if word in ("-X", "-W") and words:
            words.pop(0)
    if directory not in environment(pid).get("PYTHONPATH", "").split(":"):
        return "its PYTHONPATH does not contain the hook"
    return "it starts, or has closed the hook's file or replaced the hook's signal handler"


def _read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")
