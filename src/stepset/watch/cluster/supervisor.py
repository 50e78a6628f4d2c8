"""What a run's state means for its follower: wait, delete pods of lost nodes, give up. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.trouble import OVERDUE, LostPod, lost_pods, trouble_of
from stepset.watch.diagnose import make_failure
from stepset.watch.state import Failure, FailureKind, Phase, RunStatus

LEAVING = "it is being deleted; its pods are given time to end"
QUIET = "if it hangs, `py-spy dump` in its pods tells where, and a deadline ends it"

UNREACHABLE_AFTER = 10.0
"""Seconds without an answer after which a note reports it."""

_FAREWELL = 15.0
"""Seconds to wait for the deletion of pods whose run is gone; orphaned pods are never deleted."""


def silence(server: str, seconds: float) -> tuple[str, ...]:
    """The notes for a server that has not answered for `seconds`."""
    if seconds <= UNREACHABLE_AFTER:
        return ()
    return (f"server {server} does not answer; the run goes on without us, and is looked for again",)


@dataclass(frozen=True)
class Timeouts:
    """How long a run may make no progress before the follower gives up.

    Args:
        admission: seconds that the run may wait in a queue; None: no limit.
        startup: seconds from admission until all pods run, and again after each restart; None: no limit.
        hopeless: whether a problem that does not resolve itself ends the wait early (`Trouble.patience`), even one
            without a limit if nothing can resolve it. False for callers that only read.
        quiet: seconds without output from a running run after which a note reports this; None: never.
    """

    admission: float | None = None
    startup: float | None = 600.0
    hopeless: bool = True
    quiet: float | None = None


ONLY_LOOKS = Timeouts(None, None, hopeless=False)
"""For callers that do not own the run."""


class Supervisor:
    """Decides about one run; `gave_up`: the run did not end, but its end is no longer awaited.

    Methods take `now` in seconds since the epoch, `clock` in seconds of a monotonic clock, and `silent`, the seconds
    for which the server has not answered.
    """

    def __init__(self, patience: Timeouts) -> None:
        self.gave_up = False
        self._patience = patience
        self._waited_for, self._since = "", 0.0
        self._hopeless_for, self._hopeless_since = "", 0.0
        self._heard: float | None = None
        self._gone_since: float | None = None
        self._released: set[str] = set()

    def heard(self, clock: float) -> None:
        """Records that the run has printed something."""
        self._heard = clock

    def judged(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, silent: float
    ) -> RunStatus:
        """The status to report: given up, or not yet final while pods have time to end; `before` was reported last."""
        if status.phase.final and self._leaving(objects, now):
            # Its ranks may be saving their state; the run is over when they have ended.
            return before.with_(notes=(*status.notes, LEAVING), progress=status.progress)
        if silent > UNREACHABLE_AFTER:
            # The state is outdated, and so are the times that follow from it.
            self._since = self._hopeless_since = self._heard = clock
            return status
        if status.phase.final:
            return status
        return self._quiet(self._given_up(status, objects, now, clock), clock)

    def to_release(self, objects: RunObjects, now: float, silent: float) -> list[LostPod]:
        """Pods of lost nodes to delete by force, as the job requires; each until it is `released`."""
        if silent > UNREACHABLE_AFTER:
            return []
        return [pod for pod in lost_pods(objects, now) if pod.due and pod.uid not in self._released]

    def released(self, pod: LostPod) -> None:
        """Records that a pod was deleted."""
        self._released.add(pod.uid)

    def _leaving(self, objects: RunObjects, now: float) -> bool:
        """Whether a deleted run's pods still have time to end, and may still print."""
        workload, fate = objects.workload, objects.fate
        if workload is None or workload.ended or fate == "missing":
            return False
        if not fate:
            return workload.deleted is not None
        self._gone_since = self._gone_since or now
        # Background deletion removes the workload first, and its pods a moment later unless they are orphaned.
        left = [pod for pod in objects.pods if not pod.over]
        return any(now < (pod.due + OVERDUE if pod.due else self._gone_since + _FAREWELL) for pod in left)

    def _quiet(self, status: RunStatus, clock: float) -> RunStatus:
        """Adds a note to the status of a running run that has printed nothing for too long."""
        if status.phase is not Phase.RUNNING or self._heard is None:
            self._heard = clock
        if self._patience.quiet is None or clock - self._heard < self._patience.quiet:
            return status
        note = f"no rank has printed a line for {self._patience.quiet:.0f} s; {QUIET}"
        return status.with_(notes=(*status.notes, note))

    def _given_up(self, status: RunStatus, objects: RunObjects, now: float, clock: float) -> RunStatus:
        """The status; failed with its present trouble once the time limit has passed."""
        queued = status.reason == "Queued"
        stuck = status.phase in (Phase.PENDING, Phase.RESTARTING) or status.reason == "NodeLost"
        allowed = self._patience.admission if queued else self._patience.startup
        what = "Queued" if queued else f"start {status.attempt}" if stuck else ""
        if what != self._waited_for:
            self._waited_for, self._since = what, clock
        if not stuck:
            return status
        if allowed is not None and clock - self._since >= allowed:
            spent = f"gave up after {allowed:.0f} s {'in the queue' if queued else 'without all of it running'}"
        elif not (spent := "" if queued else self._hopeless(what, objects, now, clock)):
            return status
        self.gave_up = True
        failure = _failure(status, spent)
        return status.with_(phase=Phase.FAILED, reason="", failure=failure, finished=now, trouble=None, waiting=None)

    def _hopeless(self, what: str, objects: RunObjects, now: float, clock: float) -> str:
        """Why waiting for the run does not help; empty while it may."""
        workload = objects.workload
        if not self._patience.hopeless or workload is None:
            return ""
        trouble = trouble_of(objects, workload, objects.pods, now)
        if trouble is None or trouble.patience is None:
            self._hopeless_for = ""
            return ""
        if what != self._hopeless_for:
            self._hopeless_for, self._hopeless_since = what, clock
        if clock - self._hopeless_since < trouble.patience or (trouble.patience and self._patience.startup is None):
            return ""
        if not trouble.patience:
            return "no waiting helps"
        return f"gave up after {trouble.patience:.0f} s in which nobody has mended it"


def _failure(status: RunStatus, spent: str) -> Failure:
    """The failure of a run that was given up."""
    if status.trouble is not None:
        message = f"{status.trouble.message.rstrip('.')}; {spent}"
        return replace(status.trouble, message=message, restarts=status.attempt)
    kind = FailureKind.UNSCHEDULABLE if status.reason == "Queued" else FailureKind.INFRASTRUCTURE
    where = f" ({status.reason})" if status.reason else ""
    message = f"the run is still {status.phase.value}{where}; {spent}"
    return make_failure(kind, message, restarts=status.attempt)
