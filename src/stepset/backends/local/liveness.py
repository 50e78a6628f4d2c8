"""Checks which processes of a run exist: the supervisor's, and each rank's.

The supervisor writes a run's state. A supervisor that was killed or is stuck does not update the state, so readers also
check the processes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepset.backends.local.private_files import read_regular
from stepset.backends.local.processes import ProcessId, pid_space
from stepset.backends.local.rank_states import ENDED, LOST, PENDING, RUNNING
from stepset.run_status import RunStatus
from stepset.watch.bounded_json import parse_json

SUPERVISOR_FILE = "supervisor.json"
PROCESSES_FILE = "processes.json"


@dataclass(frozen=True)
class SupervisorRecord:
    """The supervisor's record of its own process; `process` is None if the record has none.

    `pids_are_ours` is whether the supervisor's pids identify the same processes in this process.
    """

    process: ProcessId | None = None
    pids_are_ours: bool = False

    def has_ended(self) -> bool:
        """Whether the process is known to have ended; False if this cannot be determined."""
        return self.pids_are_ours and self.process is not None and not self.process.exists()


def own_record() -> str:
    """Returns the supervisor's record of its own process, as JSON."""
    own = ProcessId.of(os.getpid())
    start_ticks = own.started if own else None
    record = {"pid": os.getpid(), "started": time.time(), "start_ticks": start_ticks, "pid_space": pid_space()}
    return json.dumps(record) + "\n"


def read_supervisor(directory: Path) -> SupervisorRecord:
    """Reads `own_record` from a run's directory; an earlier version wrote the pid alone."""
    record = _read(directory / SUPERVISOR_FILE)
    try:
        process = ProcessId.from_list([record.get("pid"), record.get("start_ticks")])
    except (ValueError, TypeError):
        return SupervisorRecord()
    return SupervisorRecord(process, record.get("pid_space") == pid_space())


def processes_record(processes: Mapping[str, ProcessId]) -> str:
    """Returns the record of a run's agents (by pod) and ranks (by source, `rank 3`), as JSON."""
    return json.dumps({name: process.to_list() for name, process in processes.items()})


def read_processes(directory: Path) -> dict[str, ProcessId]:
    """Reads `processes_record` from a run's directory; empty for a run of an earlier version, which wrote none."""
    try:
        return {name: ProcessId.from_list(data) for name, data in _read(directory / PROCESSES_FILE).items()}
    except (ValueError, TypeError):
        return {}


def with_ended_ranks(status: RunStatus, ended: Callable[[str], bool]) -> RunStatus:
    """Returns the status with running ranks marked as ended if `ended` is true for their source or their pod."""
    rows = tuple(
        replace(row, state=ENDED) if row.state == RUNNING and (ended(row.source) or ended(row.pod)) else row
        for row in status.ranks
    )
    return status.with_(ranks=rows)


def with_lost_ranks(status: RunStatus) -> RunStatus:
    """Returns the status with every waiting or running rank marked as lost, because the supervisor has ended."""
    rows = tuple(replace(row, state=LOST) if row.state in (PENDING, RUNNING) else row for row in status.ranks)
    return status.with_(ranks=rows)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = parse_json(read_regular(path))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
