"""Runs one job from its first attempt to its verdict. Restarts the gang if the job allows restarts."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stepset.backends.base import RunListener
from stepset.backends.local.gang import Gang, remedy_of
from stepset.backends.local.journal import Journal
from stepset.backends.local.layout import Assignment, plan_files, pod_specs
from stepset.backends.local.leftovers import end_processes_of
from stepset.backends.local.ports.guard import Guard
from stepset.backends.local.private_files import make_directories, write_private
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.local.tracker import Tracker
from stepset.directory_trees import discard_tree
from stepset.functions.extract import extract
from stepset.hang import HANG_CODES
from stepset.plan.code import FUNCTION_FILE
from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.spec import TrainingJob
from stepset.watch.advice import make_failure
from stepset.watch.diagnose import diagnose
from stepset.watch.state.rules import Decision, decide

_FINAL_KINDS = (FailureKind.CANCELLED, FailureKind.DEADLINE_EXCEEDED, FailureKind.REJECTED)
_UNEXPLAINED = make_failure(
    FailureKind.INFRASTRUCTURE,
    "all pods ended, but too few of them succeeded.",
    advice="Look at the logs of the pods.",
)


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt has ended. This is the input of the rules."""

    job: TrainingJob
    at: float  # in seconds since the epoch
    failure: Failure | None  # None if the pods that must succeed have succeeded
    again: bool  # whether a restart is left, the run was not asked to stop, and its logs can be written


def _restarted(end: AttemptEnd) -> Decision | None:
    """The job permits a restart after this failure."""
    job, failure = end.job, end.failure
    if failure is None or failure.kind in _FINAL_KINDS or not end.again:
        return None
    if failure.kind is FailureKind.USER_ERROR and job.restart.user_errors == "fail":
        return None
    if failure.exit_code in HANG_CODES and job.hang_times is not None and job.hang_times.action == "fail":
        return None
    return Decision(Phase.RESTARTING, failure=failure)


def _finished(end: AttemptEnd) -> Decision:
    """The attempt was the last one."""
    return Decision(Phase.FAILED if end.failure else Phase.SUCCEEDED, at=end.at, failure=end.failure)


RULES = (_restarted, _finished)
"""The first rule that applies decides how the run continues after an attempt."""


class Supervisor:
    """Runs one job on this machine.

    Args:
        status: the first status of the run.
        cancel_requests: a function that returns the reason of each request to stop the run. A reason may be "".
    """

    def __init__(
        self,
        given: Assignment,
        run: RunDir,
        status: RunStatus,
        listener: RunListener | None,
        cancel_requests: Callable[[], Sequence[str]],
    ) -> None:
        self._given = given
        self._run = run
        self._started_at = time.monotonic()
        self._cancel_requests = cancel_requests
        self._journal = Journal(run, Tracker(given.plan, status), listener)
        self._guard: Guard | None = None
        self._refused_ports: list[str] = []

    def supervise(self) -> RunStatus:
        """Runs the job until it has finished. Returns the final status.

        If the listener raised an exception, raises this exception.
        """
        # The agents hold the read end. The pipe closes when this process exits for any reason, and then the agents
        # stop.
        read_end, write_end = os.pipe()
        close_on_fork(write_end)
        try:
            self._prepare()
            if self._given.guarded:
                self._guard = Guard(self._given.host.python, self._refused_ports.append)
            self._attempts(read_end)
        except OSError as error:  # for example, the disk is full, or no process can be created
            self._fail(f"{error.strerror or error}{remedy_of(error)}")
        except BaseException as error:
            self._fail(repr(error))
            raise
        finally:
            keep_on_fork(write_end)
            os.close(read_end)
            os.close(write_end)
            end_processes_of(self._run.path)
            if self._guard is not None:
                self._guard.close()
            discard_tree(self._given.layout.scratch)
            self._given.claims.release()
            self._journal.close()
            self._run.give_up_reserve()
        if self._journal.listener_error is not None:
            raise self._journal.listener_error
        return self._journal.status()

    def _prepare(self) -> None:
        """Creates the files and directories that all attempts share."""
        given = self._given
        job, archive = given.request.job, given.request.sources.archive
        if job.function is not None:
            given.layout.code_dir.mkdir(mode=0o700)
            if archive is not None:
                extract(archive, str(given.layout.code_dir))
            write_private(given.layout.code_dir / FUNCTION_FILE, job.function)
        if given.plan.ssh is not None:
            for spec in given.specs:
                make_directories(given.layout.scratch / spec.name)
            words = (given.host.python, "-I", "-S", str(given.host.agent), "rsh", str(given.layout.scratch))
            write_private(given.layout.rsh, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o700)

    def _attempts(self, lifeline: int) -> None:
        given, job = self._given, self._given.request.job
        attempt, used = given.request.attempt, 0
        specs, ports = given.specs, given.ports
        stdin = given.request.stdin
        start = os.lseek(stdin, 0, os.SEEK_CUR) if stdin is not None and stat.S_ISREG(os.fstat(stdin).st_mode) else None
        while True:
            # A pipe cannot be rewound. If stdin is a pipe, a later attempt reads only the rest of the input.
            if stdin is not None and start is not None:
                os.lseek(stdin, start, os.SEEK_SET)
            for path, content in plan_files(given.plan, given.layout, ports).items():
                make_directories(path.parent)
                write_private(path, content)
            self._journal.begin(specs, attempt - given.request.attempt)
            gang = Gang(given, specs, self._journal, lifeline, self._guard, self._cancel_requests, self._started_at)
            end = gang.run()
            end_processes_of(self._run.path)
            restarts = attempt - given.request.attempt
            failure = diagnose(end.observations, restarts=restarts, local=True) or _UNEXPLAINED
            again = end.node_lost or used < job.restart.max_restarts
            again = again and self._journal.broken is None and not self._cancel_requests()
            if self._end(decide(RULES, AttemptEnd(job, time.time(), None if end.succeeded else failure, again))):
                return
            used += not end.node_lost
            attempt += 1
            given.claims.release_ports()
            ports = given.claims.ports(list(given.plan.ports))
            specs = pod_specs(given.plan, given.host, given.layout, ports, attempt)

    def _fail(self, reason: str) -> None:
        """Ends a run that could not be executed for reasons outside its ranks."""
        failure = make_failure(FailureKind.INFRASTRUCTURE, f"the run could not be carried out: {reason}.")
        self._end(Decision(Phase.FAILED, at=time.time(), failure=failure))

    def _end(self, decision: Decision) -> bool:
        """Ends an attempt. Returns whether the run has finished."""
        self._journal.tracker.note(*self._refused_ports)
        self._journal.attempt_over(decision)
        return decision.phase.final


# The file descriptors of the agents' pipes and of the runs' locks. Some forked children execute no other program, for
# example processes of multiprocessing. Such a child would keep these descriptors open. Then this process would seem to
# exist after it has exited.
_OWN: set[int] = set()


def close_on_fork(fd: int) -> None:
    """Closes `fd` in forked children of this process."""
    _OWN.add(fd)


def keep_on_fork(fd: int) -> None:
    """Reverts `close_on_fork`. Must be called before `fd` is closed."""
    _OWN.discard(fd)


def _close_own() -> None:
    for fd in _OWN:
        with suppress(OSError):
            os.close(fd)
    _OWN.clear()


os.register_at_fork(after_in_child=_close_own)
