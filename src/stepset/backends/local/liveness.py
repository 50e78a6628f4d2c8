"""Checks whether the supervisor and the ranks of a run still exist.

The supervisor writes the state of a run. If the supervisor was killed or is stuck, the state is not updated. Therefore
readers of the state also check the processes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepset.backends.local.private_files import read_regular
from stepset.backends.local.processes import ProcessId, pid_space
from stepset.run_status import RankStatus, RunStatus
from stepset.watch.bounded_json import parse_json
from stepset.watch.state.rank_states import ENDED, LOST, PENDING, RUNNING

SUPERVISOR_FILE = "supervisor.json"
PROCESSES_FILE = "processes.json"


@dataclass(frozen=True)
class SupervisorRecord:
    """The supervisor's record of its own process.

    Args:
        process: the process of the supervisor, or None if the record contains no process.
        pids_are_ours: whether the recorded pids are valid in this process. The pids are valid if the supervisor and
            this process are in the same pid namespace and in the same boot of the machine.
        submitted: whether the process only supervises the run. If not, it is a process of the user, such as a notebook
            kernel. True if this is unknown.
    """

    process: ProcessId | None = None
    pids_are_ours: bool = False
    submitted: bool = True

    def has_ended(self) -> bool:
        """Returns whether the process has certainly exited. Returns False if this cannot be determined."""
        return self.pids_are_ours and self.process is not None and not self.process.exists()


def own_record(*, submitted: bool) -> str:
    """Returns the supervisor's record of its own process, as JSON. `submitted` is as in SupervisorRecord."""
    own = ProcessId.of(os.getpid())
    start_ticks = own.started if own else None
    record = {
        "pid": os.getpid(),
        "started": time.time(),
        "start_ticks": start_ticks,
        "pid_space": pid_space(),
        "submitted": submitted,
    }
    return json.dumps(record) + "\n"


def read_supervisor(directory: Path) -> SupervisorRecord:
    """Reads the JSON of `own_record` from a run's directory. An earlier version wrote only the pid."""
    record = _read(directory / SUPERVISOR_FILE)
    try:
        process = ProcessId.from_list([record.get("pid"), record.get("start_ticks")])
    except (ValueError, TypeError):
        return SupervisorRecord()
    return SupervisorRecord(process, record.get("pid_space") == pid_space(), record.get("submitted") is not False)


def processes_record(processes: Mapping[str, ProcessId]) -> str:
    """Returns the processes of a run as JSON.

    Args:
        processes: the processes of the agents and the ranks. The key of an agent is the name of its pod. The key of a
            rank is its source, such as `rank 3`.
    """
    return json.dumps({name: process.to_list() for name, process in processes.items()})


def read_processes(directory: Path) -> dict[str, ProcessId]:
    """Reads the JSON of `processes_record` from a run's directory.

    Returns an empty dict for a run of an earlier version.
    """
    try:
        return {name: ProcessId.from_list(data) for name, data in _read(directory / PROCESSES_FILE).items()}
    except (ValueError, TypeError):
        return {}


def with_processes(status: RunStatus, processes: Mapping[str, ProcessId]) -> RunStatus:
    """Returns the status with the PIDs of the running ranks.

    Sets a running rank to Ended if the process of the rank or the process of the pod's agent has exited.

    Args:
        processes: the processes of the run, as in `processes_record`.
    """

    def checked(row: RankStatus) -> RankStatus:
        own = processes.get(row.source)
        if any(process is not None and not process.exists() for process in (own, processes.get(row.pod))):
            return replace(row, state=ENDED)
        return replace(row, pid=own.pid) if own is not None and row.rank is not None else row

    return status.with_(ranks=tuple(checked(row) if row.state == RUNNING else row for row in status.ranks))


def with_lost_ranks(status: RunStatus) -> RunStatus:
    """Returns the status of a run whose supervisor has exited. All waiting and running ranks have the state Lost."""
    rows = tuple(replace(row, state=LOST) if row.state in (PENDING, RUNNING) else row for row in status.ranks)
    return status.with_(ranks=rows)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = parse_json(read_regular(path))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
