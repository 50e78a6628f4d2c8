"""Decides whether the follower of a run waits, deletes the pods of lost nodes, or gives up. Contains only pure code."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepset.defaults import STARTUP_TIMEOUT
from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.advice import make_failure
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.phase import have_time
from stepset.watch.cluster.trouble import NO_FIX, LostPod, lost_pods, trouble_of
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


class FollowPolicy:
    """Decides what the follower of one run does.

    Many methods have these parameters:

    - `now`: the current time, in seconds since the epoch.
    - `clock`: the time of a monotonic clock, in seconds.
    - `silent`: the number of seconds for which the server has not answered.

    Args:
        timeouts: the time limits of the run.
        sources: the sources whose lines the follower reads. None means all sources.

    Attributes:
        gave_up: whether the follower must stop waiting for the run.
    """

    def __init__(self, timeouts: Timeouts, sources: frozenset[str] | None = None) -> None:
        self.gave_up = False
        self._timeouts, self._sources = timeouts, sources
        self._running: RunStatus | None = None  # the last status of the running run, with the ranks that are read
        self._known_hang, self._seen_at = KnownHang(), 0.0
        self._waited_for, self._since = "", 0.0
        self._permanent_for: tuple[str, FailureKind, float] | None = None
        self._permanent_since = 0.0
        self._last_output: float | None = None
        self._deleted_since: float | None = None
        self._released: set[str] = set()

    def record_output(self, clock: float) -> None:
        """Records that the run has printed something."""
        self._last_output = clock

    def status_to_report(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, silent: float
    ) -> RunStatus:
        """Returns the status to report. `before` is the status that was reported last.

        If the policy has given up, the returned status is Failed. While the pods of a deleted run are stopping, the
        returned status is `before` with the current notes and progress.
        """
        if not (status.phase.final or _is_stopped(objects)):
            self._seen_at = now
            known = status.phase is Phase.RUNNING and silent <= UNREACHABLE_AFTER
            self._running = self._read(status) if known else None
            self._known_hang = self._known_hang.see(status.hang, now)
        elif status.hang is not None and not status.phase.final:  # found while the ranks are being stopped
            self._known_hang = self._known_hang.see(status.hang, now)
        if status.phase.final and self._terminating(objects, now):
            # The ranks may be saving their state. The run has finished when the ranks have exited.
            return before.with_(notes=(*status.notes, TERMINATING), progress=status.progress)
        if silent > UNREACHABLE_AFTER:
            # The state is outdated, so the time limits start again.
            self._since = self._permanent_since = self._last_output = clock
            return status
        if status.phase.final:
            return status
        return self._quiet(self._given_up(status, objects, now, clock), clock)

    def explained(self, status: RunStatus) -> RunStatus:
        """Returns the status with a more detailed failure if a hang was known, or if the run exceeded its deadline.

        The message of the failure then also states the hang, or what was known about the ranks before the deadline
        (`silence`).
        """
        failure, hang = status.failure, status.hang or self._known_hang.at(self._seen_at)
        if failure is not None and hang is not None:
            return status.with_(failure=with_known_hang(failure, hang), hang=hang)
        before = self._running
        if failure is None or failure.kind is not FailureKind.DEADLINE_EXCEEDED or before is None:
            return status
        if not (idle := silence(before, self._seen_at)):
            return status
        message, advice = f"{failure.message.rstrip('.')}; {idle}.", deadline_advice(unfinished(before), torch=None)
        return status.with_(failure=replace(failure, message=message, advice=advice))

    def _read(self, status: RunStatus) -> RunStatus:
        """Returns the status with only the rows of ranks whose lines the follower reads.

        The other rows are omitted, because the follower does not know when the other ranks printed their last lines.
        """
        sources = self._sources
        return status.with_(ranks=tuple(row for row in status.ranks if sources is None or row.source in sources))

    def to_release(self, objects: RunObjects, now: float, silent: float) -> list[LostPod]:
        """Returns the pods of lost nodes that the follower must force-delete.

        Pods for which `released` was called are omitted.
        """
        if silent > UNREACHABLE_AFTER:
            return []
        return [pod for pod in lost_pods(objects, now) if pod.release and pod.uid not in self._released]

    def released(self, pod: LostPod) -> None:
        """Records that a pod was force-deleted."""
        self._released.add(pod.uid)

    def _terminating(self, objects: RunObjects, now: float) -> bool:
        """Returns whether pods of a deleted run are within their grace period and may still print."""
        workload, absence = objects.workload, objects.absence
        if workload is None or workload.ended or absence == "missing":
            return False
        if not absence:
            return workload.deletion_requested is not None
        self._deleted_since = self._deleted_since or now
        return have_time(objects.pods, self._deleted_since, now)

    def _quiet(self, status: RunStatus, clock: float) -> RunStatus:
        """Adds a note to the status of a running run that has printed nothing for too long."""
        if status.phase is not Phase.RUNNING or self._last_output is None:
            self._last_output = clock
        if self._timeouts.quiet is None or clock - self._last_output < self._timeouts.quiet:
            return status
        note = quiet_sentence(self._timeouts.quiet, self._read(status))
        return status.with_(notes=(*status.notes, note))

    def _given_up(self, status: RunStatus, objects: RunObjects, now: float, clock: float) -> RunStatus:
        """Returns the status. If the follower gives up, returns a status with the phase Failed.

        The failure in this status describes the current trouble.
        """
        queued = status.reason == "Queued" and (self._timeouts.startup is None or not _without_queue(objects))
        stuck = status.phase in (Phase.PENDING, Phase.RESTARTING) or status.reason == "NodeLost"
        allowed = self._timeouts.admission if queued else self._timeouts.startup
        what = "Queued" if queued else f"start {status.attempt}" if stuck else ""
        if what != self._waited_for:
            self._waited_for, self._since = what, clock
        if not stuck:
            return status
        if allowed is not None and clock - self._since >= allowed:
            spent = problems.gave_up_after(allowed, queued=queued)
        elif not (spent := self._permanent_problem(what, objects, now, clock)):
            return status
        self.gave_up = True
        failure = _failure(status, spent)
        return status.with_(phase=Phase.FAILED, reason="", failure=failure, finished=now, trouble=None, waiting=None)

    def _permanent_problem(self, what: str, objects: RunObjects, now: float, clock: float) -> str:
        """Returns why the run cannot start even if the caller waits longer. Returns "" if the run may still start."""
        workload = objects.workload
        if not self._timeouts.fail_early or workload is None:
            return ""
        trouble = trouble_of(objects, workload, objects.pods, now)
        if trouble is None or trouble.wait_limit is None:
            self._permanent_for = None
            return ""
        limit = trouble.wait_limit
        problem = (what, trouble.failure.kind, limit)
        if problem != self._permanent_for:
            self._permanent_for, self._permanent_since = problem, clock
        fixable = limit > NO_FIX
        if clock - self._permanent_since < limit or (fixable and self._timeouts.startup is None):
            return ""
        if not fixable:
            return problems.CANNOT_HELP
        return problems.not_fixed_for(limit)


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
