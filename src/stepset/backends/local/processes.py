"""Whether a process that was seen before still exists. Its pid alone does not tell: the kernel uses pids again."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_PID = 1 << 22
"""The most that Linux allows (proc_sys_kernel(5), pid_max)."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What /proc/PID/stat says of a process (proc_pid_stat(5)).

    Args:
        name: the file name of its program.
        state: one letter; Z and X for a process that has ended.
        parent: the pid of its parent.
        started: when it started, in clock ticks after boot.
    """

    name: str
    state: str
    parent: int
    started: int

    @property
    def ended(self) -> bool:
        """Whether it only waits for its parent to take note of its end."""
        return self.state in "ZX"


def process_stat(pid: int) -> ProcessStat | None:
    """Reads /proc/PID/stat; None where there is no such process, or no /proc.

    Args:
        pid: of the process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return ProcessStat(name, fields[0], int(fields[1]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be confused with a later one of the same pid.

    Args:
        pid: its pid.
        started: as in ProcessStat; None where the system does not tell.
    """

    pid: int
    started: int | None = None

    @classmethod
    def of(cls, pid: object) -> ProcessId | None:
        """The process that has this pid now; None if there is none.

        Args:
            pid: of the process, as it was reported.
        """
        if not isinstance(pid, int) or not 0 < pid <= _MAX_PID:
            return None
        stat = process_stat(pid)
        found = cls(pid, stat.started if stat else None)
        return found if found.exists() else None

    def exists(self) -> bool:
        """Whether the process is there and has not ended."""
        stat = process_stat(self.pid)
        if stat is not None:
            return not stat.ended and self.started in (None, stat.started)
        try:  # no /proc, or one that hides other users' processes
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def to_list(self) -> list[int | None]:
        """Plain data for JSON."""
        return [self.pid, self.started]

    @classmethod
    def from_list(cls, data: Any) -> ProcessId:
        """The process that `to_list` wrote.

        Raises:
            ValueError, TypeError: `to_list` did not write this.
        """
        pid, started = data
        if not isinstance(pid, int) or not 0 < pid <= _MAX_PID or not isinstance(started, (int, type(None))):
            raise ValueError(f"{data!r} is no process")
        return cls(pid, started)


def pid_space() -> str:
    """Where this process's pids mean something: the boot of a machine, and a pid namespace (pid_namespaces(7)).

    A reader elsewhere, in another container that shares the directory of the runs, say, cannot look for pids of here.
    """
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)
