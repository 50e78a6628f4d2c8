"""Starts, finds and stops processes of the cluster.

A record contains a process id and the process's start time, so that another process with a reused id is never
signalled.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.waiting import until

from . import cgroups
from .layout import LOGS, PIDS, TestbedError


def _start_time(pid: int) -> str | None:
    """Start time in clock ticks since boot (field 22 of proc(5) stat); None for a dead process or a zombie.

    A zombie with threads that have not ended counts as alive: its sockets are still open.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may contain spaces and parentheses; the fields start after the last parenthesis.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" and threads <= 1 else fields[19]


def pid_of(name: str) -> int | None:
    """The id of a process of the cluster; None if it is not running."""
    try:
        pid, started = (PIDS / name).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _start_time(int(pid)) == started else None


# For Go programs: fewer garbage collections save a sixth of the API server's CPU time, and cost a little memory.
_FEWER_COLLECTIONS = {"GOGC": "400"}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The inherited environment, with the system directories added to PATH: a root shell may lack them (su)."""
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", **(extra or {})}


def start(name: str, command: Sequence[str | Path], inside: str = "", extra: Mapping[str, str] | None = None) -> int:
    """Starts a daemon in the cluster's cgroup, with its own log file and process record.

    Args:
        name: its name in `log/` and `pid/`.
        command: program and arguments.
        inside: name of the process whose network and mount namespace the daemon joins; empty: the host's.
        extra: environment variables added to the inherited ones.

    Returns:
        The process id.

    Raises:
        TestbedError: the daemon is already running.
    """
    if pid_of(name):
        raise TestbedError(f"{name} is already running")
    LOGS.mkdir(parents=True, exist_ok=True)
    PIDS.mkdir(parents=True, exist_ok=True)
    # The shell joins the cgroup and then calls exec, as nsenter does, so the process id is the program's.
    words = ["sh", "-c", f'echo $$ >{cgroups.processes_file()} && exec "$@"', "sh", *_enter(inside), *map(str, command)]
    with (LOGS / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            env=environment({**_FEWER_COLLECTIONS, **(extra or {})}),
        )  # fmt: skip
    # The daemon continues after this program; without a return code Popen would warn about that.
    process.returncode = 0
    (PIDS / name).write_text(f"{process.pid} {_start_time(process.pid)}")
    return process.pid


def run(command: Sequence[str | Path], inside: str = "", text: str = "") -> str:
    """Runs a command in the namespaces of the process `inside`, and returns its output.

    Raises:
        TestbedError: the command failed; the message contains the end of its stderr.
    """
    words = [*_enter(inside), *map(str, command)]
    done = subprocess.run(words, input=text, env=environment(), capture_output=True, text=True)
    if done.returncode:
        where = f" in {inside}" if inside else ""
        raise TestbedError(f"`{' '.join(map(str, command))[:120]}` failed{where}: {done.stderr.strip()[-400:]}")
    return done.stdout


def signal_process(name: str, number: signal.Signals) -> bool:
    """Sends a signal to a process of the cluster; returns False if it is not running."""
    pid = pid_of(name)
    if pid is None:
        return False
    os.kill(pid, number)
    return True


def stop(name: str, number: signal.Signals = signal.SIGKILL, timeout: float = 20.0) -> bool:
    """Signals a process, and waits until it has ended.

    Returns:
        False if it was not running.

    Raises:
        TestbedError: it has not ended after `timeout` seconds.
    """
    if not signal_process(name, number):
        return False
    wait(f"{name} to stop", lambda: pid_of(name) is None, timeout)
    (PIDS / name).unlink(missing_ok=True)
    return True


def wait(what: str, condition: Callable[[], bool], timeout: float, needs: Sequence[str] = ()) -> None:
    """Polls until a condition holds, at increasing intervals.

    Args:
        what: completes the message "waited for".
        condition: returns True when done.
        timeout: seconds.
        needs: processes that must keep running in the meantime.

    Raises:
        TestbedError: the time is up, or one of `needs` died; the message contains its last log line.
    """

    def holds() -> bool:
        if condition():
            return True
        for name in needs:
            if pid_of(name) is None:
                raise TestbedError(f"{name} died while waiting for {what}: {last_line(name)}")
        return False

    if not until(holds, timeout, every=0.5):
        logs = "; ".join(f"{name}: {last_line(name)}" for name in needs)
        raise TestbedError(f"waited {timeout:.0f} s for {what} in vain{'; ' + logs if logs else ''}")


def last_line(name: str) -> str:
    """The last line in a process's log, for messages."""
    try:
        lines = (LOGS / f"{name}.log").read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "(no log)"
    return lines[-1][-300:] if lines else "(empty log)"


def _enter(inside: str) -> list[str]:
    if not inside:
        return []
    pid = pid_of(inside)
    if pid is None:
        raise TestbedError(f"{inside} is not running, so its namespaces do not exist; run `down` and `up`")
    return ["nsenter", "--target", str(pid), "--net", "--mount", "--"]
