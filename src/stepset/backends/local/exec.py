"""Starts a command as a process beside a local rank, in the environment and the directory of the rank."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stepset.backends.local.liveness import read_processes, read_supervisor
from stepset.backends.local.processes import ProcessId
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.running import running_row
from stepset.errors import BadInputError, InfrastructureError

_BY_SIGNAL = 128
"""The number that a shell adds to the number of the signal that terminated a command."""


def exec_beside_rank(run: RunDir, source: str, command: Sequence[str]) -> int:
    """Starts a command with this process's standard streams, and returns its exit code.

    If a signal terminated the command, returns 128 plus the number of the signal. The environment of the command
    contains the variable that marks processes of the rank's pod. Therefore the command is killed together with the pod.

    Raises:
        BadInputError: the source is not running, or the command cannot be started.
        InfrastructureError: this process cannot read the environment of the rank.
    """
    row = running_row(run.read(), source)
    process = read_processes(run.path).get(row.source)
    if process is None or not read_supervisor(run.path).pids_are_ours:
        raise BadInputError(
            f"{source} has no process that can be found from here; give a rank, on the machine of the run"
        )
    environment, directory = _received(process, source)
    try:
        started = subprocess.Popen(command, cwd=directory, env=environment)
    except OSError as error:
        raise BadInputError(f"{command[0]}: cannot be started: {error.strerror}; check the command") from error
    while True:
        with suppress(KeyboardInterrupt):  # the command has also received Ctrl-C and decides what to do
            code = started.wait()
            return code if code >= 0 else _BY_SIGNAL - code


def _received(process: ProcessId, source: str) -> tuple[dict[bytes, bytes], str]:
    place = Path(f"/proc/{process.pid}")
    try:
        entries = (place / "environ").read_bytes().split(b"\0")
        directory = str((place / "cwd").readlink())
    except OSError as error:
        raise InfrastructureError(f"{source}: its environment cannot be read: {error.strerror}") from error
    if not process.exists():
        raise BadInputError(f"{source} has just ended")
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}, directory
