"""Identifies processes and checks whether they still exist. A pid is not sufficient, because the kernel reuses pids."""

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
    """The fields of /proc/PID/stat (proc_pid_stat(5)); `started` is in clock ticks after boot.

    `name` is the file name of the program; the `state` of a process that has ended is Z or X.
    """

    name: str
    state: str
    parent: int
    started: int

    @property
    def ended(self) -> bool:
        """Whether the process has ended and its parent has not read its exit status yet."""
        return self.state in "ZX"


def process_stat(pid: int) -> ProcessStat | None:
    """Reads /proc/PID/stat; None if there is no such process, or no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return ProcessStat(name, fields[0], int(fields[1]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process.

    `started` distinguishes the process from later processes with this pid; None if the system does not report the start
    time.
    """

    pid: int
    started: int | None = None

    @classmethod
    def of(cls, pid: object) -> ProcessId | None:
        """Returns the process that has this pid now; None if there is none."""
        if not isinstance(pid, int) or not 0 < pid <= _MAX_PID:
            return None
        stat = process_stat(pid)
        found = cls(pid, stat.started if stat else None)
        return found if found.exists() else None

    def exists(self) -> bool:
        """Whether the process exists and has not ended."""
        stat = process_stat(self.pid)
        if stat is not None:
            return not stat.ended and self.started in (None, stat.started)
        try:  # no /proc, or one that hides other users' processes
            os.kill(self.pid, 0)
        except OSError as error:
            return not isinstance(error, ProcessLookupError)
        return True

    def to_list(self) -> list[int | None]:
        return [self.pid, self.started]

    @classmethod
    def from_list(cls, data: Any) -> ProcessId:
        """Reads what `to_list` returned; raises ValueError or TypeError for anything else."""
        pid, started = data
        if not isinstance(pid, int) or not 0 < pid <= _MAX_PID or not isinstance(started, (int, type(None))):
            raise ValueError(f"{data!r} is not a process")
        return cls(pid, started)


def pid_space() -> str:
    """Returns the scope in which this process's pids are valid: a boot and a pid namespace (pid_namespaces(7)).

    For example, a reader in another container that shares the directory of the runs cannot look up these pids.
    """
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)
