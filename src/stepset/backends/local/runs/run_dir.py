"""Reads and writes the directory of one run, which contains its state, its job and its logs.

`<home>/runs/<run>/` contains `job.json`, `state.json`, `supervisor.json`, `processes.json`, `points.json`, `lock`,
`cancel`, `stop-request`, `log`, `ranks/` and `pods/` (docs/design/local.md). The process that runs the job writes
these files, and other processes read them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepset.backends.local.liveness import (
    PROCESSES_FILE,
    SUPERVISOR_FILE,
    SupervisorRecord,
    processes_record,
    read_processes,
    read_supervisor,
    with_lost_ranks,
    with_processes,
)
from stepset.backends.local.private_files import open_private, read_regular, write_private
from stepset.backends.local.processes import ProcessId
from stepset.backends.local.runs.settings import default_ttl
from stepset.directory_trees import Cursor
from stepset.errors import InfrastructureError, RunNotFoundError
from stepset.run_status import FailureKind, Phase, ProgressPoint, RunStatus
from stepset.watch.advice import NOT_SUBMITTED_ADVICE, make_failure
from stepset.watch.bounded_json import parse_json
from stepset.watch.points import limited

ORIGIN_FILE = "origin.json"
DESCRIPTION = (ORIGIN_FILE, "job.json", "state.json")
"""The files from which a run is listed, in the order in which they are deleted."""
_POINTS_FILE = "points.json"
_STOP_FILE = "stop-request"


@dataclass(frozen=True)
class RecordedJob:
    """The recorded job of a run, in the form of a job file. Relative paths in the job start from `base_dir`.

    `function_file` is the path of the file that defines the job's Python function, or "" if it is not known.
    """

    content: Mapping[str, Any]
    base_dir: Path
    function_file: str = ""

    @property
    def program_file(self) -> str:
        """The absolute path of the script, or `function_file`. Empty for other programs."""
        script, code = self.content.get("script"), self.content.get("code")
        if not isinstance(script, str):
            return self.function_file
        return os.path.realpath(self.base_dir / (code if isinstance(code, str) else "") / script)


@dataclass(frozen=True)
class RunDir:
    """The directory of one run, `<home>/runs/<run>`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        """The path of the merged log."""
        return self.path / "log"

    @property
    def parts(self) -> Path:
        """The path of a file that exists if the merged log contains lines that are split into parts."""
        return self.path / "log.parts"

    @property
    def open_lines(self) -> Path:
        """The path of the JSON file with the states of incomplete lines. The file may be missing."""
        return self.path / "open-lines.json"

    def rank_log(self, source: str) -> Path:
        """Returns the path of the file that contains the unchanged output of one source."""
        return self.path / "ranks" / f"{source.replace(' ', '-')}.log"

    def pod(self, pod: str) -> Path:
        return self.path / "pods" / pod

    def read(self) -> RunStatus:
        """Returns the last state that the supervisor wrote.

        If the supervisor exited without a verdict, the phase of the returned state is Lost.

        Raises:
            RunNotFoundError: the run does not exist.
        """
        return self.with_expiry(self._read())

    def with_expiry(self, status: RunStatus) -> RunStatus:
        """Returns the status with the time at which the run expires. The time is None if the run has not finished."""
        return status.with_ttl(_ttl(self)) if status.phase.final else status

    def _read(self) -> RunStatus:
        status = self._written()
        if status.phase.final:
            return status
        if self.alive():
            return self._with_processes(status)
        status = self._written()  # the supervisor may have written the verdict after the first read
        if status.phase.final:
            return status
        return _lost(status, read_supervisor(self.path), self._last_sign(), self._stop_request())

    def _with_processes(self, status: RunStatus) -> RunStatus:
        """Returns the status with the PIDs of running ranks.

        Sets a running rank to Ended if its process has exited. If this process cannot check the processes of the run,
        returns the status unchanged.
        """
        if not read_supervisor(self.path).pids_are_ours:
            return status
        return with_processes(status, read_processes(self.path))

    def _written(self) -> RunStatus:
        try:
            status = RunStatus.from_dict(parse_json(read_regular(self.path / "state.json")))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunNotFoundError(f"{self.name}: no such run") from error
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"{self.path / 'state.json'}: cannot be read: {error}") from error
        if status.name != self.name:  # callers build paths from the name of the run
            raise InfrastructureError(f"{self.path / 'state.json'}: the state of another run, {status.name!r}")
        return status

    def _last_sign(self) -> float | None:
        """Returns the time at which the supervisor last wrote or touched a file, in seconds since the epoch."""
        try:
            files = self.path / "state.json", self.log, self.path / SUPERVISOR_FILE
            return max(path.stat().st_mtime for path in files)
        except OSError:
            return None

    def touch(self) -> None:
        """Records that the supervisor exists, also while the ranks print nothing."""
        with suppress(OSError):
            os.utime(self.path / SUPERVISOR_FILE)

    def write_stop_request(self, reason: str) -> None:
        """Records that the supervisor stops a cancelled run. `reason` may be "". Raises OSError."""
        self._replace(_STOP_FILE, reason.encode())

    def _stop_request(self) -> str | None:
        """Returns the reason that `write_stop_request` recorded, or None if the run was not cancelled."""
        try:
            return read_regular(self.path / _STOP_FILE).decode(errors="replace")
        except OSError:
            return None

    def write(self, status: RunStatus) -> None:
        """Replaces the state atomically. If the disk is full, frees the reserved space first. Raises OSError."""
        data = json.dumps(status.to_dict(), separators=(",", ":")).encode()
        try:
            self._replace("state.json", data)
        except OSError as error:
            if not disk_full(error):
                raise
            self.give_up_reserve()
            self._replace("state.json", data)

    def write_points(self, points: Sequence[ProgressPoint]) -> None:
        """Replaces the record of the run's progress reports atomically. Raises OSError."""
        self._replace(_POINTS_FILE, json.dumps([asdict(point) for point in points], separators=(",", ":")).encode())

    def with_details(self, status: RunStatus) -> RunStatus:
        """Returns the status with `points`, `resumable` and `function`, which `state.json` does not contain."""
        status = status.with_(points=status.points or self._points())
        if not status.phase.final or status.phase is Phase.SUCCEEDED:
            return status
        return self._with_resume_details(status)

    def _points(self) -> tuple[ProgressPoint, ...]:
        """Returns the recorded progress reports. If the reports cannot be read, returns an empty tuple."""
        from msgspec import ValidationError, convert

        try:
            return limited(convert(parse_json(read_regular(self.path / _POINTS_FILE)), tuple[ProgressPoint, ...]))
        except (OSError, ValueError, ValidationError, RecursionError, OverflowError):
            return ()

    def _with_resume_details(self, status: RunStatus) -> RunStatus:
        """Returns the status of a run without success, with `resumable` and `function` from the record of its job."""
        from stepset.backends.local.checkpoints import has_checkpoint
        from stepset.functions.program import called_function

        with suppress(InfrastructureError, OSError, ValueError):
            recorded = self.recorded_job()
            directory, env, program = map(recorded.content.get, ("checkpoint_dir", "env", "function"))
            if isinstance(directory, str):
                resumable = has_checkpoint(recorded.base_dir / directory, env if isinstance(env, dict) else {})
                called = called_function(program) if resumable and isinstance(program, str) else ""
                return status.with_(resumable=resumable, function=called)
        return status

    def write_processes(self, processes: Mapping[str, ProcessId]) -> None:
        """Replaces the record of the run's processes (`processes_record`) atomically. Raises OSError."""
        self._replace(PROCESSES_FILE, processes_record(processes).encode())

    def write_open_lines(self, states: bytes) -> None:
        """Replaces the file `open_lines` atomically. Raises OSError."""
        self._replace(self.open_lines.name, states)

    def _replace(self, name: str, data: bytes) -> None:
        new = self.path / f".{name}.new"
        try:
            write_private(new, data)
            new.replace(self.path / name)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def give_up_reserve(self) -> None:
        """Frees the disk space that is reserved for the verdict."""
        with suppress(OSError):
            (self.path / "reserve").unlink()

    def alive(self) -> bool:
        """Returns whether the supervisor exists. The supervisor holds the lock until it exits.

        A child process that Python did not fork can hold the lock longer. Therefore this method also checks the
        supervisor's process.
        """
        try:
            fd = os.open(self.path / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # The lock is shared. Otherwise two readers could mistake each other for the supervisor.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return not read_supervisor(self.path).has_ended()
        finally:
            os.close(fd)
        return False

    def recorded_job(self) -> RecordedJob:
        """Returns the job of the run. Raises InfrastructureError if the job cannot be read."""
        try:
            content: Any = parse_json(read_regular(self.path / "job.json"))
            origin: Any = parse_json(read_regular(self.path / ORIGIN_FILE))
            base_dir, file = origin["base_dir"], origin.get("function_file", "")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InfrastructureError(f"{self.name}: its job cannot be read: {error!r}; give its job file") from error
        if not isinstance(content, dict) or not isinstance(base_dir, str):
            raise InfrastructureError(f"{self.name}: its job cannot be read; give its job file")
        return RecordedJob(content, Path(base_dir), str(file))

    def disk_usage(self) -> int:
        """Returns the number of bytes that the directory occupies on the disk.

        Files that are deleted during the call, and files and directories that cannot be examined, are ignored.
        """
        blocks = 0
        with suppress(OSError), closing(Cursor(self.path)) as cursor:
            for entries in cursor.walk(lambda name, error: None):
                blocks += cursor.about.st_blocks
                for name in (entry.name for entry in entries if not entry.is_directory):
                    with suppress(OSError):
                        blocks += os.stat(name, dir_fd=cursor.fd, follow_symlinks=False).st_blocks
        return blocks * 512

    def request_cancel(self) -> None:
        """Records a request to cancel. A second request kills the run. Raises InfrastructureError."""
        try:
            fd = open_private(self.path / "cancel", os.O_WRONLY | os.O_APPEND)
            try:
                os.write(fd, b"!")
            finally:
                os.close(fd)
        except OSError as error:
            raise InfrastructureError(
                f"{self.path / 'cancel'}: cannot be written: {error.strerror}; remove it, or end the run's processes"
            ) from error

    def cancel_requests(self) -> int:
        try:
            about = (self.path / "cancel").lstat()
        except OSError:
            return 0
        return about.st_size if stat.S_ISREG(about.st_mode) else 0


def disk_full(error: OSError) -> bool:
    """Returns whether the error means that the disk or the user's quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _ttl(run: RunDir) -> int | None:
    """Returns the ttl of the job in seconds, or the default ttl. Returns None if the run is kept forever."""
    from stepset.spec.quantity import parse_duration

    try:
        ttl: Any = parse_json(read_regular(run.path / "job.json")).get("ttl")
        if ttl is not None:
            return parse_duration(ttl)
    except (OSError, ValueError, AttributeError):
        return None  # this version of stepset cannot read the file, so the ttl is unknown
    return default_ttl(os.environ)


def _lost(
    status: RunStatus, supervisor: SupervisorRecord, last_sign: float | None, stop_request: str | None
) -> RunStatus:
    pid = f" (pid {supervisor.process.pid})" if supervisor.process else ""
    who = f"the process that ran it{pid}"
    text = f"{who} ended without a verdict: it was killed, or the machine was restarted."
    kind = FailureKind.LOST
    if stop_request is not None:
        kind, why = FailureKind.CANCELLED, f"{stop_request.rstrip('.')}; " if stop_request else ""
        text = f"the run was cancelled: {why}{who} was asked to stop, and was killed before its ranks had exited."
    advice = {"advice": NOT_SUBMITTED_ADVICE} if kind is FailureKind.LOST and not supervisor.submitted else {}
    failure = make_failure(kind, text, restarts=status.attempt, **advice)
    return with_lost_ranks(status).with_(phase=Phase.LOST, reason="", failure=failure, finished=last_sign)
