"""Run directories: the state and the logs of each run, for all processes.

`<home>/runs/<run>/` contains `job.json`, `state.json`, `supervisor.json`, `processes.json`, `lock`, `cancel`, `log`,
`ranks/` and `pods/` (docs/design/local.md). The process that runs the job writes them, other processes read them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.liveness import (
    PROCESSES_FILE,
    SUPERVISOR_FILE,
    own_record,
    processes_record,
    read_processes,
    read_supervisor,
    with_ended_ranks,
    with_lost_ranks,
)
from stepset.backends.local.private_files import make_directories, open_private, read_regular, write_private
from stepset.backends.local.processes import ProcessId
from stepset.backends.prune import PruneRule, check_deletable, not_a_run
from stepset.errors import BadInputError, InfrastructureError, RunNotFoundError
from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.bounded_json import parse_json
from stepset.watch.diagnose import ADVICE

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

_RESERVE = 256 * 1024
"""Bytes reserved on the disk for the verdict, in case the run fills the disk."""

_KEPT = 30 * 86_400
"""Seconds for which the directory of an ended run is kept by default."""

_ORIGIN = "origin.json"

_NAME_MAX = 255
"""The largest number of bytes in a file's name (Linux, limits.h)."""


def home_directory(environ: Mapping[str, str]) -> Path:
    """Returns `$STEPSET_HOME`, else `stepset` in the user's state directory (XDG Base Directory Specification 0.8)."""
    if given := environ.get("STEPSET_HOME"):
        try:
            return Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise BadInputError(f"STEPSET_HOME: {given}: the home directory does not exist; give a path") from error
    # The specification requires that relative paths in this variable are ignored.
    if (state := environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return Path(state) / "stepset"
    try:
        home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        raise BadInputError(
            f"STEPSET_HOME: not set, and user {os.getuid()} has no home directory; set it to a directory for runs"
        ) from error
    return Path(home) / ".local/state/stepset"


@dataclass(frozen=True)
class RecordedJob:
    """The job of a run, as the content of a job file, and the directory that its paths are relative to."""

    content: Mapping[str, Any]
    base_dir: Path


@dataclass(frozen=True)
class RunDir:
    """The directory of one run, `<home>/runs/<run>`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        """The merged log."""
        return self.path / "log"

    @property
    def parts(self) -> Path:
        """A file that exists if the merged log has lines in parts."""
        return self.path / "log.parts"

    def rank_log(self, source: str) -> Path:
        """Returns the file with the output of one source, byte for byte."""
        return self.path / "ranks" / f"{source.replace(' ', '-')}.log"

    def pod(self, pod: str) -> Path:
        return self.path / "pods" / pod

    def read(self) -> RunStatus:
        """Returns the last written state; Lost if the supervisor ended without a verdict. Raises RunNotFoundError."""
        return self.with_expiry(self._read())

    def with_expiry(self, status: RunStatus) -> RunStatus:
        """Returns the state of the run with the time at which it expires, if it is over."""
        return status.with_ttl(_ttl(self)) if status.phase.final else status

    def _read(self) -> RunStatus:
        status = self._written()
        if status.phase.final:
            return status
        if self.alive():
            return self._with_ended_ranks(status)
        status = self._written()  # the verdict may have been written after the first reading
        return status if status.phase.final else _lost(status, read_supervisor(self.path).process, self._last_sign())

    def _with_ended_ranks(self, status: RunStatus) -> RunStatus:
        """Returns the state with ended ranks, if this process can check the run's processes."""
        if not read_supervisor(self.path).pids_are_ours:
            return status
        processes = read_processes(self.path)
        return with_ended_ranks(status, lambda name: name in processes and not processes[name].exists())

    def _written(self) -> RunStatus:
        try:
            return RunStatus.from_dict(parse_json(read_regular(self.path / "state.json")))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunNotFoundError(f"{self.name}: no such run") from error
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"{self.path / 'state.json'}: cannot be read: {error}") from error

    def _last_sign(self) -> float | None:
        """Returns when the supervisor last wrote a file (seconds since the epoch)."""
        try:
            return max(path.stat().st_mtime for path in (self.path / "state.json", self.log))
        except OSError:
            return None

    def write(self, status: RunStatus) -> None:
        """Replaces the state atomically; releases the reserve if the disk is full. Raises OSError."""
        data = json.dumps(status.to_dict(), separators=(",", ":")).encode()
        try:
            self._replace("state.json", data)
        except OSError as error:
            if not disk_full(error):
                raise
            self.give_up_reserve()
            self._replace("state.json", data)

    def write_processes(self, processes: Mapping[str, ProcessId]) -> None:
        """Replaces the record of the run's processes (`processes_record`) atomically; raises OSError."""
        self._replace(PROCESSES_FILE, processes_record(processes).encode())

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
        """Frees the space that was reserved for the verdict."""
        with suppress(OSError):
            (self.path / "reserve").unlink()

    def alive(self) -> bool:
        """Whether the supervisor exists; it holds the lock until it ends.

        A child that was not forked by Python may hold the lock longer, so this method also checks the process.
        """
        try:
            fd = os.open(self.path / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # A shared lock, so that two readers do not mistake each other for the supervisor.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return not read_supervisor(self.path).has_ended()
        finally:
            os.close(fd)
        return False

    def recorded_job(self) -> RecordedJob:
        """Returns the job of the run; InfrastructureError if it cannot be read."""
        try:
            content: Any = parse_json(read_regular(self.path / "job.json"))
            base_dir: Any = parse_json(read_regular(self.path / _ORIGIN))["base_dir"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InfrastructureError(f"{self.name}: its job cannot be read: {error!r}; give its job file") from error
        if not isinstance(content, dict) or not isinstance(base_dir, str):
            raise InfrastructureError(f"{self.name}: its job cannot be read; give its job file")
        return RecordedJob(content, Path(base_dir))

    def disk_usage(self) -> int:
        """Returns the bytes on the disk that the directory takes; ignores files that are deleted meanwhile."""
        total = 0
        for directory, _, files in os.walk(self.path):
            for name in (".", *files):
                with suppress(OSError):
                    total += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118  # no Path each
        return total

    def request_cancel(self) -> None:
        """Records a request to cancel; a second one kills the run."""
        fd = open_private(self.path / "cancel", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, b"!")
        finally:
            os.close(fd)

    def cancel_requests(self) -> int:
        try:
            return (self.path / "cancel").stat().st_size
        except OSError:
            return 0


@dataclass(frozen=True)
class RunStore:
    """All runs of a user on this machine, in `<home>/runs`."""

    home: Path

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    def create(self, status: RunStatus, job: TrainingJob, base_dir: Path | None = None) -> tuple[RunDir, int]:
        """Creates the directory of a new run; returns it and the descriptor of its lock, which is held.

        `base_dir` is the directory that the job's paths are relative to, for `recorded_job`.

        The directory is created under another name and renamed, so that no reader finds a run without state or lock.
        Raises BadInputError if the name is taken, InfrastructureError for a missing permission or a full disk.
        """
        target = self.runs / status.name
        if target.exists():
            raise _taken(status.name)
        new: Path | None = None
        lock = -1
        try:
            self._make_private()
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=self.runs))
            lock = open_private(new / "lock", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)
            (new / "ranks").mkdir(mode=0o700)
            (new / "pods").mkdir(mode=0o700)
            write_private(new / "job.json", json.dumps(job.to_dict(), indent=2) + "\n")
            write_private(new / _ORIGIN, json.dumps({"base_dir": str(base_dir or Path().absolute())}) + "\n")
            write_private(new / SUPERVISOR_FILE, own_record())
            write_private(new / "log", b"")
            write_private(new / "reserve", b"\0" * _RESERVE)
            RunDir(new).write(status)
            new.rename(target)
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            if new is not None:
                shutil.rmtree(new, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and target.exists():
                raise _taken(status.name) from error
            raise InfrastructureError(
                f"{self.runs}: a run directory cannot be created: {error.strerror};"
                " free some space, or set STEPSET_HOME to another directory"
            ) from error
        return RunDir(target), lock

    def _make_private(self) -> None:
        """Creates the directory of all runs for this user only, whatever the umask.

        Raises OSError if it belongs to another user, who could replace its runs. Root may use the directory of another
        user, unless that user started this process through sudo: the files would be root's, in that user's directory.
        """
        sudo = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
        above = next(each for each in (self.runs, *self.runs.parents) if each.exists())
        if sudo not in ("", "0") and str(above.stat().st_uid) == sudo:
            raise OSError(errno.EPERM, f"sudo runs this as root, and {above} belongs to user {sudo}; use sudo -H")
        make_directories(self.runs)
        about = self.runs.stat()
        if os.geteuid() not in (0, about.st_uid):
            raise OSError(errno.EPERM, "it belongs to another user", str(self.runs))
        if about.st_uid == os.geteuid() and about.st_mode & 0o077:
            self.runs.chmod(0o700)

    def find(self, name: str) -> RunDir:
        """Returns the run of that name, or the newest run of the job of that name; else raises RunNotFoundError."""
        if not name or "/" in name or name.startswith(".") or len(os.fsencode(name)) > _NAME_MAX:
            raise RunNotFoundError(f"{name!r}: no such run, and no job of that name")
        run = RunDir(self.runs / name)
        if (run.path / "state.json").exists():
            return run
        of_job = [status for _, status in self._all() if status.job == name]
        if not of_job:
            raise RunNotFoundError(
                f"{name}: no such run, and no run of a job of that name; `stepset list` shows all runs"
            )
        return RunDir(self.runs / max(of_job, key=lambda s: s.created).name)

    def list(self) -> list[RunStatus]:
        """Returns every run, the newest first."""
        return sorted((status for _, status in self._all()), key=lambda s: s.created, reverse=True)

    def _all(self) -> Iterator[tuple[RunDir, RunStatus]]:
        try:
            paths = [p for p in self.runs.iterdir() if not p.name.startswith(".")]
        except FileNotFoundError:
            return
        except OSError as error:
            raise InfrastructureError(f"cannot read {self.runs}: {error.strerror}") from error
        for path in paths:
            run = RunDir(path)
            # A directory that is being deleted, or that stepset did not write, must not hide the others.
            with suppress(RunNotFoundError, InfrastructureError):
                yield run, run.read()

    def prune(self, rule: PruneRule, now: float, *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the directories of the ended runs that a rule selects, and returns the runs, the newest first.

        Remaining processes of a lost run are ended first: no other record of them exists. `dry_run` changes nothing.
        """
        selected = [(run, status) for run, status in self._all() if rule.selects(status, now)]
        for run, status in () if dry_run else selected:
            _delete(run, status)
        return sorted((status for _, status in selected), key=lambda s: s.created, reverse=True)

    def delete(self, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the directories of ended runs, as `prune` does; raises as `Backend.delete`."""
        found = [(run, run.read()) for run in map(self._named, dict.fromkeys(names))]
        check_deletable([status for _, status in found])
        for run, status in () if dry_run else found:
            _delete(run, status)
        return [status for _, status in found]

    def _named(self, name: str) -> RunDir:
        """Returns the run of exactly that name; else raises RunNotFoundError."""
        run = self.find(name)
        if run.name != name:
            raise not_a_run(name, run.name)
        return run


def _delete(run: RunDir, status: RunStatus) -> None:
    if status.phase is Phase.LOST:
        end_processes_of(run.path)
    shutil.rmtree(run.path, ignore_errors=True)


def disk_full(error: OSError) -> bool:
    """Whether the error means that the disk, or the user's quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _ttl(run: RunDir) -> int | None:
    """Returns the job's ttl in seconds, else that of all runs; None: the run is kept."""
    from stepset.spec.quantity import parse_duration

    try:
        ttl: Any = parse_json(read_regular(run.path / "job.json")).get("ttl")
        if ttl is not None:
            return parse_duration(ttl)
    except (OSError, ValueError, AttributeError):
        return None  # not a directory that this version can read: nothing is known about when to delete it
    return default_ttl(os.environ)


def default_ttl(environ: Mapping[str, str]) -> int | None:
    """Returns the seconds after which the directories of ended runs are deleted, unless the job has a ttl.

    `$STEPSET_KEEP_RUNS` is a duration, or `never` (None); default: 30 days. Raises BadInputError for another value.
    """
    from stepset.spec.quantity import parse_duration

    given = environ.get("STEPSET_KEEP_RUNS", "")
    if given == "never":
        return None
    try:
        return parse_duration(given) if given else _KEPT
    except ValueError as error:
        raise BadInputError(f"STEPSET_KEEP_RUNS: {error}, or never") from error


def _taken(name: str) -> BadInputError:
    return BadInputError(f"name: run {name!r} exists already; choose another name, or omit it")


def _lost(status: RunStatus, supervisor: ProcessId | None, last_sign: float | None) -> RunStatus:
    who = f"the process that ran it (pid {supervisor.pid})" if supervisor else "the process that ran it"
    failure = Failure(
        kind=FailureKind.LOST,
        message=f"{who} ended without a verdict: it was killed, or the machine was restarted.",
        advice=ADVICE[FailureKind.LOST],
        restarts=status.attempt,
    )
    return with_lost_ranks(status).with_(phase=Phase.LOST, reason="", failure=failure, finished=last_sign)
