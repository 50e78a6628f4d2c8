"""Which processes of a run exist: its supervisor's, and each rank's. Read by the store, written by it and the journal.

The state in a run's directory is as its supervisor last wrote it. A supervisor that was killed, stopped or is stuck
writes nothing any more, so a reader looks for the processes themselves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepset.backends.local.processes import ProcessId, pid_space
from stepset.backends.local.rank_states import ENDED, LOST, PENDING, RUNNING
from stepset.watch.state import RunStatus

SUPERVISOR_FILE = "supervisor.json"
PROCESSES_FILE = "processes.json"


@dataclass(frozen=True)
class Supervisor:
    """The process that runs a job, as it recorded itself.

    Args:
        process: its process; None where the record does not hold it.
        pids_are_ours: whether this process can look for pids that the supervisor knows.
    """

    process: ProcessId | None = None
    pids_are_ours: bool = False

    def known_to_be_gone(self) -> bool:
        """Whether it does not exist any more; False where that cannot be told."""
        return self.pids_are_ours and self.process is not None and not self.process.exists()


def own_record() -> str:
    """What the supervisor writes down about its own process, as JSON."""
    own = ProcessId.of(os.getpid())
    start_ticks = own.started if own else None
    record = {"pid": os.getpid(), "started": time.time(), "start_ticks": start_ticks, "pid_space": pid_space()}
    return json.dumps(record) + "\n"


def read_supervisor(directory: Path) -> Supervisor:
    """Reads what `own_record` wrote; an earlier version wrote the pid alone.

    Args:
        directory: the run's.
    """
    record = _read(directory / SUPERVISOR_FILE)
    try:
        process = ProcessId.from_list([record.get("pid"), record.get("start_ticks")])
    except (ValueError, TypeError):
        return Supervisor()
    return Supervisor(process, record.get("pid_space") == pid_space())


def processes_record(processes: Mapping[str, ProcessId]) -> str:
    """What the supervisor writes down about the processes of its pods and ranks, as JSON.

    Args:
        processes: pod -> its agent's process, and source (`rank 3`) -> that rank's own.
    """
    return json.dumps({name: process.to_list() for name, process in processes.items()})


def read_processes(directory: Path) -> dict[str, ProcessId]:
    """Reads what `processes_record` wrote; empty for a run of an earlier version, which wrote nothing.

    Args:
        directory: the run's.
    """
    try:
        return {name: ProcessId.from_list(data) for name, data in _read(directory / PROCESSES_FILE).items()}
    except (ValueError, TypeError):
        return {}


def with_ended_ranks(status: RunStatus, gone: Callable[[str], bool]) -> RunStatus:
    """A status in which no rank runs whose process, or whose pod's agent, does not exist.

    Args:
        status: as the supervisor wrote it.
        gone: whether the process of a pod or of a source is known not to exist.
    """
    rows = tuple(
        replace(row, state=ENDED) if row.state == RUNNING and (gone(row.source) or gone(row.pod)) else row
        for row in status.ranks
    )
    return status.with_(ranks=rows)


def with_lost_ranks(status: RunStatus) -> RunStatus:
    """A status in which no rank runs or waits, because there is no supervisor."""
    rows = tuple(replace(row, state=LOST) if row.state in (PENDING, RUNNING) else row for row in status.ranks)
    return status.with_(ranks=rows)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
