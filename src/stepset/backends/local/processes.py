"""Identifies processes, and checks whether they still exist.

A pid alone does not identify a process, because the kernel reuses pids.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_PID = 1 << 22
"""The largest pid that Linux allows (proc_sys_kernel(5), pid_max)."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Fields of /proc/PID/stat (proc_pid_stat(5)).

    Args:
        name: the file name of the program.
        state: the state of the process. The state is Z or X if the process has exited.
        parent: the pid of the parent process.
        started: the start time, in clock ticks after the boot.
    """

    name: str
    state: str
    parent: int
    started: int

    @property
    def ended(self) -> bool:
        """Whether the process has exited and its parent has not yet read the exit status."""
        return self.state in "ZX"


def process_stat(pid: int) -> ProcessStat | None:
    """Reads /proc/PID/stat. Returns None if the process does not exist, or if the system has no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return ProcessStat(name, fields[0], int(fields[1]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies a process.

    Args:
        pid: the pid of the process.
        started: the start time, which distinguishes the process from later processes with the same pid. None if the
            system does not report start times.
    """

    pid: int
    started: int | None = None

    @classmethod
    def of(cls, pid: object) -> ProcessId | None:
        """Returns the process that currently has this pid, or None if there is no such process."""
        if not isinstance(pid, int) or not 0 < pid <= _MAX_PID:
            return None
        stat = process_stat(pid)
        found = cls(pid, stat.started if stat else None)
        return found if found.exists() else None

    def exists(self) -> bool:
        """Returns whether the process exists and has not exited."""
        stat = process_stat(self.pid)
        if stat is not None:
            return not stat.ended and self.started in (None, stat.started)
        # This check is for systems without /proc, and for systems whose /proc hides the processes of other users.
        try:
            os.kill(self.pid, 0)
        except OSError as error:
            return not isinstance(error, ProcessLookupError)
        return True

    def to_list(self) -> list[int | None]:
        return [self.pid, self.started]

    @classmethod
    def from_list(cls, data: Any) -> ProcessId:
        """Reads the value that `to_list` returned. Raises ValueError or TypeError for any other value."""
        pid, started = data
        if not isinstance(pid, int) or not 0 < pid <= _MAX_PID or not isinstance(started, (int, type(None))):
            raise ValueError(f"{data!r} is not a process")
        return cls(pid, started)


def pid_space() -> str:
    """Returns a string that identifies the current boot of the machine and the pid namespace (pid_namespaces(7)).

    The pids that this process sees are valid only in processes for which this function returns the same string. For
    example, these pids are not valid in another container that shares the directory of the runs.
    """
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def oom_kills() -> int | None:
    """Returns how many processes the kernel's out-of-memory killer has killed on this machine, or None if unknown."""
    try:
        words = Path("/proc/vmstat").read_text().split()
        return int(words[words.index("oom_kill") + 1])
    except (OSError, ValueError):
        return None
