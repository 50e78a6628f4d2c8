"""Starts processes, reads how they ended, ends this process in the same way, and counts out-of-memory kills."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.signals import HANDLED_SIGNALS, signal

DRAIN = 0.2  # seconds for which the pipe of an ended process is still read, if a child of the process keeps it open
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def outcome(status: int) -> dict[str, int]:
    """Returns a wait status as `{"exit_code": n}` or `{"signal": n}`."""
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"exit_code": os.WEXITSTATUS(status)}


def exit_code(end: Mapping[str, Any]) -> int:
    """Returns a shell's exit code for an outcome: 128 + n for signal n."""
    return 128 + int(end["signal"]) if "signal" in end else int(end.get("exit_code", 1))


def which(program: str, env: Mapping[str, str]) -> str | None:
    """Returns the path of a program as PATH of `env` defines it, or None."""
    if "/" in program:
        return program
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


_libc: Any = None


def prctl(option: int, value: int) -> None:
    """Calls prctl(2) on Linux; does nothing elsewhere, or if Python was built without libffi."""
    global _libc
    if not sys.platform.startswith("linux"):
        return
    if _libc is None:
        try:
            import ctypes

            _libc = ctypes.CDLL(None)
        except (ImportError, OSError):
            _libc = False
    if _libc:
        _libc.prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Makes this process the parent of orphaned descendants (on Linux)."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    stdio: tuple[int, int, int],
    *,
    death_signal: int = signal.SIGKILL,
    work_dir: str = "",
) -> int:
    """Starts a program in its own process group; returns its pid.

    On Linux the kernel ends the program when this process ends. A program that cannot be started writes the reason to
    its standard error and exits as in a shell: 127 not found, 126 not executable.

    Args:
        env: the whole environment of the program.
        stdio: the file descriptors that become standard input, output and error of the program.
        death_signal: the signal that the kernel sends when this process ends.
        work_dir: the working directory of the program; "": that of this process.
    """
    pid = fork(death_signal)
    if pid:
        return pid
    try:
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        _execute(argv, env, work_dir)
    finally:
        os._exit(126)


def fork(death_signal: int) -> int:
    """Forks as `os.fork` does; the child leads a process group and has no signal handlers.

    On Linux the kernel sends the signal `death_signal` to the child when this process ends.
    """
    prctl(0, 0)  # loads libc before the fork
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with IF_POSSIBLE:
            os.setpgid(pid, pid)  # parent and child both do it: either may run first
        return pid
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (*HANDLED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):  # Python itself ignores the last two
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        os._exit(127)
    return 0


def _execute(argv: Sequence[str], env: Mapping[str, str], work_dir: str) -> None:
    path = argv[0]
    try:
        if work_dir:
            os.chdir(work_dir)
        path = which(argv[0], env) or ""
        if not path:
            os.write(2, f"stepset: cannot start {argv[0]}: not found on PATH\n".encode())
            os._exit(127)
        os.execve(path, list(argv), dict(env))
    except OSError as error:
        os.write(2, f"stepset: cannot start {path}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def end_as(end: Mapping[str, int], hydra: bool = False) -> NoReturn:
    """Ends this process as another process ended.

    `hydra` is whether the launcher of MPICH or Intel MPI started this rank. Over several nodes that launcher does not
    notice a rank that exits with a code, and the other ranks wait forever; it notices a signal (MPICH 4.0.2, tested).
    """
    number = end.get("signal", 0)
    if hydra and end.get("exit_code"):
        number = signal.SIGKILL
    if number:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its own core dump
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(1)
    os._exit(exit_code(end))


def oom_kills() -> int:
    """Returns how many processes of this container (cgroup) the kernel has killed for lack of memory; 0 if unknown."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2)[1:] for line in file]
    except OSError:
        return 0
    count = 0
    for controllers, path in groups:
        if controllers == "memory":  # version 1; a container can read only the root of the tree
            places = (f"/sys/fs/cgroup/memory{path}/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control")
        elif not controllers:
            places = (f"/sys/fs/cgroup{path}/memory.events", "/sys/fs/cgroup/memory.events")
        else:
            continue
        for place in places:
            with IF_POSSIBLE, open(place, encoding="utf-8") as file:
                count += next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
                break
    return count
