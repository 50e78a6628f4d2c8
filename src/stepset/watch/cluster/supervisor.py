"""Decides what the follower of a run does: wait, delete the pods of lost nodes, or give up. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.trouble import OVERDUE, LostPod, lost_pods, trouble_of
from stepset.watch.diagnose import make_failure
from stepset.watch.state import Failure, FailureKind, Phase, RunStatus

TERMINATING = "the run is being deleted; its pods have time to end"
QUIET = "if the run hangs, `py-spy dump` in its pods shows where; set a deadline to end such runs"

UNREACHABLE_AFTER = 10.0
"""Seconds without an answer from the server after which a note reports this."""

_PODS_DELETED_WITHIN = 15.0
"""Seconds to wait for the deletion of a deleted run's pods; orphaned pods are never deleted."""


def unreachable_notes(server: str, seconds: float) -> tuple[str, ...]:
    """The notes for a server that has not answered for `seconds`."""
    if seconds <= UNREACHABLE_AFTER:
        return ()
    return (f"server {server} does not answer; the run continues, and stepset tries to reconnect",)


@dataclass(frozen=True)
class Timeouts:
    """How long a run may be unable to start before the follower gives up.

    Args:
        admission: seconds that the run may wait in a queue; None: no limit.
        startup: seconds from admission, or from a restart, until all pods run; None: no limit.
        fail_early: whether a problem that does not resolve itself ends the wait early (`Trouble.wait_limit`). Without a
            `startup` limit this applies only to problems that cannot be resolved. False for callers that only read.
        quiet: seconds without output from a running run after which a note reports this; None: never.
    """

    admission: float | None = None
    startup: float | None = 600.0
    fail_early: bool = True
    quiet: float | None = None


READ_ONLY = Timeouts(None, None, fail_early=False)
"""For callers that do not own the run."""


class Supervisor:
    """Decides about one run. `gave_up` is True once the follower need not wait for the end of the run.

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
        """The status to report: failed after giving up, or not yet final while pods end; `before` was reported last."""
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
        """Pods of lost nodes that the job requires to be force-deleted, without those that were `released`."""
        if silent > UNREACHABLE_AFTER:
            return []
        return [pod for pod in lost_pods(objects, now) if pod.due and pod.uid not in self._released]

    def released(self, pod: LostPod) -> None:
        """Records that a pod was force-deleted."""
        self._released.add(pod.uid)

    def _terminating(self, objects: RunObjects, now: float) -> bool:
        """Whether pods of a deleted run are within their grace period, and may still print."""
        workload, fate = objects.workload, objects.fate
        if workload is None or workload.ended or fate == "missing":
            return False
        if not fate:
            return workload.deletion_requested is not None
        self._deleted_since = self._deleted_since or now
        # Background deletion removes the workload first, and its pods a moment later unless they are orphaned.
        left = [pod for pod in objects.pods if not pod.over]
        return any(now < (pod.due + OVERDUE if pod.due else self._deleted_since + _PODS_DELETED_WITHIN) for pod in left)

    def _quiet(self, status: RunStatus, clock: float) -> RunStatus:
        """Adds a note to the status of a running run that has printed nothing for too long."""
        if status.phase is not Phase.RUNNING or self._last_output is None:
            self._last_output = clock
        if self._timeouts.quiet is None or clock - self._last_output < self._timeouts.quiet:
            return status
        note = f"no rank has printed a line for {self._timeouts.quiet:.0f} s; {QUIET}"
        return status.with_(notes=(*status.notes, note))

    def _given_up(self, status: RunStatus, objects: RunObjects, now: float, clock: float) -> RunStatus:
        """The status; once the time limit has passed, failed with the present trouble."""
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
