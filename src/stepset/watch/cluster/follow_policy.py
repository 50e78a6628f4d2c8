"""Decides what the follower of a run does: wait, delete the pods of lost nodes, or give up. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.trouble import OVERDUE, LostPod, lost_pods, trouble_of
from stepset.watch.diagnose import make_failure

TERMINATING = "the run is being deleted; its pods have time to end"
QUIET = "if the run hangs, `py-spy dump` in its pods shows where; set a deadline to end such runs"

UNREACHABLE_AFTER = 10.0
"""Seconds without an answer from the server after which a note reports this."""

ANSWERED_FOR = 15.0
"""Seconds for which the server must have answered before the note is removed."""

PODS_DELETED_WITHIN = 15.0
"""Seconds to wait for the deletion of a deleted run's pods; orphaned pods are never deleted."""


class OutageNote:
    """The note on a server that does not answer.

    A server that restarts answers some requests before it answers all. The note therefore remains until the server has
    answered for ANSWERED_FOR seconds, so that one outage is reported once.
    """

    def __init__(self, server: str) -> None:
        self._note = f"server {server} does not answer; the run continues, and stepset tries to reconnect"
        self._until = float("-inf")

    def notes(self, silent: float, clock: float) -> tuple[str, ...]:
        """Returns the note, or nothing.

        Args:
            silent: the seconds for which the server has not answered; 0 while it does.
            clock: the time in seconds of a monotonic clock.
        """
        if silent > UNREACHABLE_AFTER:
            self._until = clock + ANSWERED_FOR
        return (self._note,) if clock < self._until else ()


@dataclass(frozen=True)
class Timeouts:
    """How long a run may be unable to start before the follower gives up.

    Args:
        admission: seconds that the run may wait in a queue; None: no limit.
        startup: seconds from admission, or from a restart, until all pods run; None: no limit.
        fail_early: whether a problem that does not resolve itself ends the wait early (`Trouble.wait_limit`). A problem
            in the pods themselves ends the wait at once. A problem that a user can fix ends it after some time, and
            only if there is a `startup` limit. False for callers that only read.
        quiet: seconds without output from a running run after which a note reports this; None: never.
    """

    admission: float | None = None
    startup: float | None = 600.0
    fail_early: bool = True
    quiet: float | None = None


READ_ONLY = Timeouts(None, None, fail_early=False)
"""No time limits."""


class FollowPolicy:
    """Decides about one run. `gave_up` is True once the follower should stop waiting for the end of the run.

    `now` is in seconds since the epoch, `clock` in seconds of a monotonic clock; `silent` is the number of seconds for
    which the server has not answered.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.gave_up = False
        self._timeouts = timeouts
        self._waited_for, self._since = "", 0.0
        self._permanent_for, self._permanent_since = "", 0.0
        self._last_output: float | None = None
        self._deleted_since: float | None = None
        self._released: set[str] = set()

    def record_output(self, clock: float) -> None:
        """Records that the run has printed something."""
        self._last_output = clock

    def status_to_report(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, silent: float
    ) -> RunStatus:
        """Returns the status to report; `before` is the one that was reported last.

        After the policy has given up, it is a failed one. While the pods of a deleted run end, it is `before` with the
        current notes and progress.
        """
        if status.phase.final and self._terminating(objects, now):
            # Its ranks may be saving their state; the run is over when they have ended.
            return before.with_(notes=(*status.notes, TERMINATING), progress=status.progress)
        if silent > UNREACHABLE_AFTER:
            # The state is outdated: restart the time limits.
            self._since = self._permanent_since = self._last_output = clock
            return status
        if status.phase.final:
            return status
        return self._quiet(self._given_up(status, objects, now, clock), clock)

    def to_release(self, objects: RunObjects, now: float, silent: float) -> list[LostPod]:
        """The pods of lost nodes that the follower must force-delete, except those that `released` has recorded."""
        if silent > UNREACHABLE_AFTER:
            return []
        return [pod for pod in lost_pods(objects, now) if pod.release and pod.uid not in self._released]

    def released(self, pod: LostPod) -> None:
        """Records that a pod was force-deleted."""
        self._released.add(pod.uid)

    def _terminating(self, objects: RunObjects, now: float) -> bool:
        """Whether pods of a deleted run are within their grace period, and may still print."""
        workload, absence = objects.workload, objects.absence
        if workload is None or workload.ended or absence == "missing":
            return False
        if not absence:
            return workload.deletion_requested is not None
        self._deleted_since = self._deleted_since or now
        # Background deletion removes the workload first, and its pods a moment later unless they are orphaned.
        left = [pod for pod in objects.pods if not pod.over]
        return any(now < (pod.due + OVERDUE if pod.due else self._deleted_since + PODS_DELETED_WITHIN) for pod in left)

    def _quiet(self, status: RunStatus, clock: float) -> RunStatus:
        """Adds a note to the status of a running run that has printed nothing for too long."""
        if status.phase is not Phase.RUNNING or self._last_output is None:
            self._last_output = clock
        if self._timeouts.quiet is None or clock - self._last_output < self._timeouts.quiet:
            return status
        note = f"no rank has printed a line for {self._timeouts.quiet:.0f} s; {QUIET}"
        return status.with_(notes=(*status.notes, note))

    def _given_up(self, status: RunStatus, objects: RunObjects, now: float, clock: float) -> RunStatus:
        """The status; after the time limit, a failed one with the current trouble as failure."""
        queued = status.reason == "Queued"
        stuck = status.phase in (Phase.PENDING, Phase.RESTARTING) or status.reason == "NodeLost"
        allowed = self._timeouts.admission if queued else self._timeouts.startup
        what = "Queued" if queued else f"start {status.attempt}" if stuck else ""
        if what != self._waited_for:
            self._waited_for, self._since = what, clock
        if not stuck:
            return status
        if allowed is not None and clock - self._since >= allowed:
            spent = f"gave up after {allowed:.0f} s {'in the queue' if queued else 'without all pods running'}"
        elif not (spent := "" if queued else self._permanent_problem(what, objects, now, clock)):
            return status
        self.gave_up = True
        failure = _failure(status, spent)
        return status.with_(phase=Phase.FAILED, reason="", failure=failure, finished=now, trouble=None, waiting=None)

    def _permanent_problem(self, what: str, objects: RunObjects, now: float, clock: float) -> str:
        """Why waiting longer cannot help; empty while it may."""
        workload = objects.workload
        if not self._timeouts.fail_early or workload is None:
            return ""
        trouble = trouble_of(objects, workload, objects.pods, now)
        if trouble is None or trouble.wait_limit is None:
            self._permanent_for = ""
            return ""
        if what != self._permanent_for:
            self._permanent_for, self._permanent_since = what, clock
        limit = trouble.wait_limit
        if clock - self._permanent_since < limit or (limit and self._timeouts.startup is None):
            return ""
        if not limit:
            return "waiting cannot resolve this"
        return f"gave up after {limit:.0f} s in which the problem was not fixed"


def _failure(status: RunStatus, spent: str) -> Failure:
    """The failure of a run that was given up."""
    if status.trouble is not None:
        message = f"{status.trouble.message.rstrip('.')}; {spent}"
        return replace(status.trouble, message=message, restarts=status.attempt)
    kind = FailureKind.UNSCHEDULABLE if status.reason == "Queued" else FailureKind.INFRASTRUCTURE
    where = f" ({status.reason})" if status.reason else ""
    message = f"the run is still {status.phase.value}{where}; {spent}"
    return make_failure(kind, message, restarts=status.attempt)
