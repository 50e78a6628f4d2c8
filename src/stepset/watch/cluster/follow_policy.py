"""Decides whether the follower of a run waits, deletes the pods of lost nodes, or gives up. Contains only pure code."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from stepset.defaults import STARTUP_TIMEOUT
from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.advice import make_failure
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import have_time
from stepset.watch.cluster.trouble import NO_FIX, NODE_LOST, QUEUED, LostPod, lost_pods, trouble_of
from stepset.watch.deadline import deadline_advice
from stepset.watch.hangs.stalled import KnownHang, with_known_hang
from stepset.watch.present import problems
from stepset.watch.present.run_end import TERMINATING
from stepset.watch.present.silence import quiet_sentence, silence, unfinished

UNREACHABLE_AFTER = 10.0
"""The number of seconds without an answer from the server after which a note reports the outage."""

ANSWERED_FOR = 15.0
"""The number of seconds for which the server must have answered before the note is removed."""


@dataclass(frozen=True)
class OutageNote:
    """A note which states that a server does not answer.

    While a server restarts, it answers some requests before it answers all requests. Therefore the note remains until
    the server has answered for ANSWERED_FOR seconds. Otherwise one outage would be reported several times.
    """

    server: str
    until: float = float("-inf")

    def see(self, silent: float, clock: float) -> OutageNote:
        """Returns the note after an observation. `silent` and `clock` have the meaning as in `FollowPolicy`."""
        return OutageNote(self.server, clock + ANSWERED_FOR) if silent > UNREACHABLE_AFTER else self

    def at(self, clock: float) -> tuple[str, ...]:
        """Returns the text of the note, or an empty tuple if there is no note at this time."""
        return (problems.server_silent(self.server),) if clock < self.until else ()


@dataclass(frozen=True)
class Timeouts:
    """How long a run may need to start before the follower gives up.

    Args:
        admission: the number of seconds that the run may wait in a queue. None means no limit.
        startup: the number of seconds after which all pods must run. The time starts at the admission and at each
            restart. None means no limit. This limit also applies to a run that names a queue, if Kueue creates no
            Workload for the run. If `startup` is None, the limit `admission` applies to such a run.
        fail_early: whether the follower gives up before these limits if a problem cannot resolve itself
            (`Trouble.wait_limit`). If the problem is in the pods themselves, the follower gives up after
            `trouble.NO_FIX` seconds. If a user can fix the problem and there is a `startup` limit, the follower gives
            up after `trouble.FIX_BY_USER` seconds. Callers that only read a run use False.
        quiet: the number of seconds without output after which a note reports that a running run prints nothing. None
            means never.
    """

    admission: float | None = None
    startup: float | None = STARTUP_TIMEOUT
    fail_early: bool = True
    quiet: float | None = None


READ_ONLY = Timeouts(None, None, fail_early=False)
"""No time limits."""


@dataclass(frozen=True)
class _Timed:
    """A value, and the time since which it has not changed."""

    value: Any = None
    since: float = 0.0

    def see(self, value: Any, now: float) -> _Timed:
        return self if value == self.value else _Timed(value, now)


@dataclass(frozen=True)
class FollowPolicy:
    """Decides what the follower of one run does. The follower calls `decide` after each observation.

    Many methods have these parameters:

    - `now`: the current time, in seconds since the epoch.
    - `clock`: the time of a monotonic clock, in seconds.
    - `silent`: the number of seconds for which the server has not answered.

    Args:
        timeouts: the time limits of the run.
        sources: the sources whose lines the follower reads. None means all sources.
        last_output: the time at which the run has printed something, or since which it can have printed nothing.
        known_hang: the last hang of the run.
        running: the last status of the running run, with the rows of the ranks whose lines the follower reads.
        seen_at: the time of `running`. No pod was being stopped at this time.
        waits: what the run waits for, or "".
        problem: the problem that cannot resolve itself: what the run waits for, the kind and the time limit. Or None.
        absence: `RunObjects.absence`.
    """

    timeouts: Timeouts
    sources: frozenset[str] | None = None
    last_output: float = math.inf
    known_hang: KnownHang = field(default_factory=KnownHang)
    running: RunStatus | None = None
    seen_at: float = 0.0
    waits: _Timed = _Timed("")
    problem: _Timed = _Timed()
    absence: _Timed = _Timed("")

    def decide(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, silent: float
    ) -> Decision:
        """Returns what the follower does after an observation.

        `status` is the result of `status_of` for `objects`. `before` is the status that was reported last. While the
        server is silent, the time limits do not run.
        """
        status = self.explained(status)
        policy = self._see(status, objects, now, clock, silent)
        spent = policy._gives_up(clock)
        return Decision(policy, policy._status_to_report(status, before, objects, now, clock, spent), bool(spent))

    def _see(self, status: RunStatus, objects: RunObjects, now: float, clock: float, silent: float) -> FollowPolicy:
        final, answers = status.phase.final, silent <= UNREACHABLE_AFTER
        runs, stopped = answers and status.phase is Phase.RUNNING, final or _is_stopped(objects)
        running, seen_at = (self.running, self.seen_at) if stopped else (self._read(status) if runs else None, now)
        hidden = final or (stopped and status.hang is None)  # a hang may be found while the ranks are being stopped
        waits = self._wait_of(status, objects) if answers and not final else ""
        return replace(
            self,
            running=running,
            seen_at=seen_at,
            known_hang=self.known_hang if hidden else self.known_hang.see(status.hang, now),
            waits=self.waits.see(waits, clock),
            problem=self.problem.see(self._problem_of(waits, objects, now) if waits else None, clock),
            absence=self.absence.see(objects.absence, now),
            last_output=min(self.last_output, clock) if runs else clock,
        )

    def _status_to_report(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, spent: str
    ) -> RunStatus:
        """Returns the field `status` of a decision. `spent` is the result of `_gives_up`."""
        if status.phase.final and self._terminating(objects, now):
            # The ranks may be saving their state. The run has finished when the ranks have exited.
            return before.with_(notes=(*status.notes, TERMINATING), progress=status.progress)
        if spent:
            ended = {"finished": now, "trouble": None, "waiting": None}
            return status.with_(phase=Phase.FAILED, reason="", failure=_failure(status, spent), **ended)
        quiet = self.timeouts.quiet
        if quiet is None or clock - self.last_output < quiet:
            return status
        return status.with_(notes=(*status.notes, quiet_sentence(quiet, self._read(status))))

    def _gives_up(self, clock: float) -> str:
        """Returns why the follower must stop waiting for the run. Returns "" if the run may still start."""
        queued = self.waits.value == QUEUED
        allowed = self.timeouts.admission if queued else self.timeouts.startup
        if self.waits.value and allowed is not None and clock - self.waits.since >= allowed:
            return problems.gave_up_after(allowed, queued=queued)
        limit = math.inf if self.problem.value is None else self.problem.value[-1]
        fixable = limit > NO_FIX
        if clock - self.problem.since < limit or (fixable and self.timeouts.startup is None):
            return ""
        return problems.not_fixed_for(limit) if fixable else problems.CANNOT_HELP

    def explained(self, status: RunStatus) -> RunStatus:
        """Returns the status with a more detailed failure if a hang was known, or if the run exceeded its deadline.

        The message of the failure then also states the hang, or what was known about the ranks before the deadline
        (`silence`).
        """
        failure, hang = status.failure, status.hang or self.known_hang.at(self.seen_at)
        if failure is not None and hang is not None:
            return status.with_(failure=with_known_hang(failure, hang), hang=hang)
        before = self.running
        if failure is None or failure.kind is not FailureKind.DEADLINE_EXCEEDED or before is None:
            return status
        if not (idle := silence(before, self.seen_at)):
            return status
        message, advice = f"{failure.message.rstrip('.')}; {idle}.", deadline_advice(unfinished(before), torch=None)
        return status.with_(failure=replace(failure, message=message, advice=advice))

    def _read(self, status: RunStatus) -> RunStatus:
        """Returns the status with only the rows of ranks whose lines the follower reads.

        The other rows are omitted, because the follower does not know when the other ranks printed their last lines.
        """
        sources = self.sources
        return status.with_(ranks=tuple(row for row in status.ranks if sources is None or row.source in sources))

    def _terminating(self, objects: RunObjects, now: float) -> bool:
        """Returns whether pods of a deleted run are within their grace period and may still print."""
        workload, absence = objects.workload, objects.absence
        if workload is None or workload.ended or absence == "missing":
            return False
        if not absence:
            return workload.deletion_requested is not None
        return have_time(objects.pods, self.absence.since, now)

    def _wait_of(self, status: RunStatus, objects: RunObjects) -> str:
        """Returns what a run waits for whose pods do not all run. Returns "" for other runs."""
        if status.reason == QUEUED and (self.timeouts.startup is None or not _without_queue(objects)):
            return QUEUED
        stuck = status.phase in (Phase.PENDING, Phase.RESTARTING) or status.reason == NODE_LOST
        return f"start {status.attempt}" if stuck else ""

    def _problem_of(self, waits: str, objects: RunObjects, now: float) -> tuple[str, FailureKind, float] | None:
        """Returns the problem because of which the run cannot start even if the caller waits longer, or None."""
        workload = objects.workload
        if not self.timeouts.fail_early or workload is None:
            return None
        trouble = trouble_of(objects, workload, objects.pods, now)
        if trouble is None or trouble.wait_limit is None:
            return None
        return waits, trouble.failure.kind, trouble.wait_limit


class Decision(NamedTuple):
    """What the follower of a run does after an observation.

    Args:
        policy: the policy for the next observation.
        status: the status to report. If the follower gives up, the status is Failed, and its failure describes the
            current trouble. While the pods of a deleted run are stopping, `status` is the status before the
            observation with the current notes and progress.
        gave_up: whether the follower stops waiting for the run.
    """

    policy: FollowPolicy
    status: RunStatus
    gave_up: bool


def to_release(objects: RunObjects, released: Set[str], now: float, silent: float) -> list[LostPod]:
    """Returns the pods of lost nodes that the follower must force-delete. `released` are the uids of released pods.

    The parameters `now` and `silent` have the meaning as in `FollowPolicy`.
    """
    lost = lost_pods(objects, now) if silent <= UNREACHABLE_AFTER else []
    return [pod for pod in lost if pod.release and pod.uid not in released]


def _without_queue(objects: RunObjects) -> bool:
    """Returns whether Kueue has created no Workload for a run. Such a run does not wait in a queue."""
    return objects.unqueued is not None and objects.unqueued.confirmed and not objects.kueue_workloads


def _is_stopped(objects: RunObjects) -> bool:
    """Returns whether a pod has failed or is being deleted. Ranks may print lines while they are being stopped."""
    return any((pod.over and not pod.succeeded) or pod.deletion_requested is not None for pod in objects.pods)


def _failure(status: RunStatus, spent: str) -> Failure:
    """Returns the failure of a run for which the follower has stopped waiting."""
    if status.trouble is not None:
        message = f"{status.trouble.message.rstrip('.')}; {spent}"
        return replace(status.trouble, message=message, restarts=status.attempt)
    kind = FailureKind.UNSCHEDULABLE if status.reason == "Queued" else FailureKind.INFRASTRUCTURE
    return make_failure(kind, problems.still_waiting(status.phase, status.reason, spent), restarts=status.attempt)
