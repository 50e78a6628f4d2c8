"""Functions that start processes, read or reproduce exit codes and signals, and count out-of-memory kills."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.signals import HANDLED_SIGNALS, signal

DRAIN = 0.2  # Seconds for which the pipe of a terminated process is still read, if its children keep the pipe open.
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
    """Searches PATH of `env` for a program. Returns the path of the program, or None if it is not found."""
    if "/" in program:
        return program
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


_libc: Any = None


def prctl(option: int, value: int) -> None:
    """Calls prctl(2) on Linux. Does nothing on other systems, or if Python was built without libffi."""
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
    """Starts a program in its own process group and returns its pid.

    On Linux, the kernel stops the program when this process terminates. A new process that cannot start the program
    writes the reason to standard error. Like a shell, it then exits with 127 (not found) or 126 (not executable).

    Args:
        env: the whole environment of the program.
        stdio: the file descriptors that become standard input, output and error of the program.
        death_signal: the signal that the kernel sends when this process terminates.
        work_dir: the working directory of the program. "" means the working directory of this process.
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
    """Forks this process, like `os.fork`. The child leads a process group and has no signal handlers.

    On Linux, the kernel sends the signal `death_signal` to the child when this process terminates.
    """
    prctl(0, 0)  # loads libc before the fork
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with IF_POSSIBLE:
            os.setpgid(pid, pid)  # Both the parent and the child call it, because either may run first.
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
    """Terminates this process with the exit code or the signal of another process.

    `hydra` states whether MPICH or Intel MPI started this rank. If a run has several nodes, their launcher ignores the
    error code of a rank. The other ranks wait forever. But this launcher detects a fatal signal (MPICH 4.0.2, tested).
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
    """Returns the number of out-of-memory kills in this container (cgroup), or 0 if the number is unknown."""
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
