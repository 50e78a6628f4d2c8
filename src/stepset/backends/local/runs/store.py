"""Creates, finds, lists and deletes the run directories of a user on this machine."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepset.backends.airflow_tasks import is_of_task, task_hint
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.liveness import SUPERVISOR_FILE, own_record
from stepset.backends.local.private_files import make_private, open_private, write_private
from stepset.backends.local.runs.run_dir import DESCRIPTION, ORIGIN_FILE, RunDir
from stepset.backends.local.runs.settings import HOME_VARIABLE
from stepset.backends.option_names import Interface, list_call
from stepset.backends.prune import PruneRule, check_deletable, not_a_run
from stepset.backends.run_names import name_taken, similar
from stepset.directory_trees import UndeletableError, delete_tree, discard_tree
from stepset.errors import InfrastructureError, RunNotFoundError
from stepset.run_status import Phase, RunStatus
from stepset.trusted_path import check_path

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

_log = logging.getLogger(__name__)

_RESERVE = 256 * 1024
"""The number of bytes that are reserved on the disk for the verdict, because the run can fill the disk."""

_NAME_MAX = 255
"""The maximum number of bytes in a file name (Linux, limits.h)."""


@dataclass(frozen=True)
class RunStore:
    """All runs of a user on this machine, in `<home>/runs`. `interface` is the interface of the caller."""

    home: Path
    interface: Interface = "cli"

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    def create(
        self,
        status: RunStatus,
        job: TrainingJob,
        base_dir: Path | None = None,
        function_file: str = "",
        *,
        submitted: bool = False,
    ) -> tuple[RunDir, int]:
        """Creates the directory of a new run. Returns the directory and the file descriptor of its lock.

        This process holds the lock. The directory is created under another name and then renamed. Therefore a reader
        never finds a run without a state or a lock.

        Args:
            base_dir: the directory from which relative paths in the job start. `recorded_job` returns this directory.
            function_file: the path of the file that defines the job's Python function, or "".
            submitted: whether this process only supervises the run.

        Raises:
            BadInputError: the name of the run is already used.
            InfrastructureError: a permission is missing, the disk is full, or another user could replace the directory.
        """
        target = self.runs / status.name
        if target.exists():
            raise name_taken(status.name)
        new: Path | None = None
        lock = -1
        try:
            make_private(self.runs, HOME_VARIABLE)
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=self.runs))
            lock = open_private(new / "lock", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)
            (new / "ranks").mkdir(mode=0o700)
            (new / "pods").mkdir(mode=0o700)
            write_private(new / "job.json", json.dumps(job.to_dict(), indent=2) + "\n")
            origin = {"base_dir": str(base_dir or Path().absolute()), "function_file": function_file}
            write_private(new / ORIGIN_FILE, json.dumps(origin) + "\n")
            write_private(new / SUPERVISOR_FILE, own_record(submitted=submitted))
            write_private(new / "log", b"")
            write_private(new / "reserve", b"\0" * _RESERVE)
            RunDir(new).write(status)
            new.rename(target)
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            if new is not None:
                discard_tree(new)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and target.exists():
                raise name_taken(status.name) from error
            space = "free some space, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise InfrastructureError(
                f"{self.runs}: a run directory cannot be created: {error.strerror};"
                f" {space}set STEPSET_HOME to another directory"
            ) from error
        return RunDir(target), lock

    def find(self, name: str) -> RunDir:
        """Returns the run with this name. If no run has the name, returns the newest run of the job with this name.

        If no job has the name and the name has the form DAG.TASK, returns the newest run of this Airflow task.

        Raises:
            RunNotFoundError: there is no such run.
            InfrastructureError: another user could replace the directory of the run.
        """
        if not name or "/" in name or "\0" in name or name.startswith(".") or len(os.fsencode(name)) > _NAME_MAX:
            raise RunNotFoundError(f"{name!r}: no such run, and no job of that name")
        run = RunDir(self.runs / name)
        check_path(run.path, HOME_VARIABLE)
        if (run.path / "state.json").exists():
            return run
        every = [status for _, status in self._all()]
        found = [status for status in every if status.job == name]
        found = found or [status for status in every if is_of_task(status.labels, name)]
        if not found:
            names = (each for run in every for each in (run.job, run.name))
            raise RunNotFoundError(
                f"{name}: no such run, and no run of a job of that name; {similar(name, names)}"
                f"{list_call(self.interface)} shows the names of runs{task_hint(name, (run.labels for run in every))}"
            )
        return RunDir(self.runs / max(found, key=lambda s: s.created).name)

    def list(self) -> list[RunStatus]:
        """Returns every run, the newest first."""
        return sorted((status for _, status in self._all()), key=lambda s: s.created, reverse=True)

    def newest_with(self, checkpoint_dir: str) -> RunStatus | None:
        """Returns the newest run of a job with this checkpoint_dir, or None. Ignores runs whose job cannot be read."""
        for status in self.list():
            with suppress(InfrastructureError):
                if RunDir(self.runs / status.name).recorded_job().content.get("checkpoint_dir") == checkpoint_dir:
                    return status
        return None

    def _all(self) -> Iterator[tuple[RunDir, RunStatus]]:
        check_path(self.runs, HOME_VARIABLE)
        try:
            paths = [p for p in self.runs.iterdir() if not p.name.startswith(".")]
        except FileNotFoundError:
            return
        except OSError as error:
            raise InfrastructureError(f"cannot read {self.runs}: {error.strerror}") from error
        for path in paths:
            run = RunDir(path)
            try:
                check_path(path, HOME_VARIABLE, checked=self.runs)
                status = run.read()
            except RunNotFoundError:
                continue  # another process is deleting the directory, or stepset did not create it
            except InfrastructureError as error:  # one unreadable directory must not hide the other runs
                _log.warning("%s; the run is ignored", error)
                continue
            yield run, status

    def prune(self, rule: PruneRule, now: float, *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the directories of the finished runs that a rule selects. Returns these runs, the newest first.

        If a run is Lost, its remaining processes are killed first. Without the directory, stepset could not find these
        processes. If a directory cannot be deleted, a warning is logged, and its run is not returned. If `dry_run` is
        True, nothing is changed.
        """
        found = [(run, status) for run, status in self._all() if rule.selects(status, now)]
        problems = _delete(() if dry_run else found)
        for problem in problems.values():
            _log.warning("%s", problem)
        return sorted((each for _, each in found if each.name not in problems), key=lambda s: s.created, reverse=True)

    def delete(self, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the directories of finished runs as `prune` does.

        Raises the same errors as `Backend.delete`. Raises InfrastructureError if a directory cannot be deleted.
        """
        found = [(run, run.read()) for run in map(self._named, dict.fromkeys(names))]
        check_deletable([status for _, status in found])
        if not dry_run and (problems := _delete(found)):
            deleted = [f"deleted {status.name}" for _, status in found if status.name not in problems]
            raise InfrastructureError("\n".join([*deleted, *problems.values()]))
        return [status for _, status in found]

    def _named(self, name: str) -> RunDir:
        """Returns the run with exactly this name. Raises RunNotFoundError if no run has this name."""
        run = self.find(name)
        if run.name != name:
            raise not_a_run(name, run.name)
        return run


def _delete(runs: Iterable[tuple[RunDir, RunStatus]]) -> dict[str, str]:
    """Deletes directories of runs. Returns the names of the runs whose directory cannot be deleted, with the reasons.

    The files that describe such a run remain, so that the user can still find the run.
    """
    problems = {}
    for run, status in runs:
        if status.phase is Phase.LOST:
            end_processes_of(run.path)
        try:
            delete_tree(run.path, last=DESCRIPTION)
        except UndeletableError as error:
            problems[run.name] = f"{error}; change the permissions, or delete the directory as another user"
    return problems
