"""What follows from a run's state for whoever is answerable for it: wait, release lost nodes' pods, give up. Pure.

Used by the backend's follower, in a thread, and by Airflow's trigger, in an event loop; each says what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.trouble import OVERDUE, LostPod, lost_pods, trouble_of
from stepset.watch.diagnose import ADVICE
from stepset.watch.state import Failure, FailureKind, Phase, RunStatus

LEAVING = "it is being deleted; its pods are given time to end"

QUIET = "if it hangs, `py-spy dump` in its pods tells where, and a deadline ends it"

UNREACHABLE_AFTER = 10.0
"""Seconds without an answer after which it is said that the server gives none."""

_FAREWELL = 15.0
"""Seconds that pods have whose run is gone and who were not told to go: orphans never are."""


def silence(server: str, seconds: float) -> tuple[str, ...]:
    """What is said while a server gives no answer.

    Args:
        server: its address.
        seconds: for how long it has not.
    """
    if seconds <= UNREACHABLE_AFTER:
        return ()
    return (f"server {server} does not answer; the run goes on without us, and is looked for again",)


@dataclass(frozen=True)
class Patience:
    """How long a run may stand still before it is given up.

    Args:
        admission: seconds it may wait in a queue; None: for ever.
        startup: seconds from there until all of it runs, and again after each restart; None: for ever.
        hopeless: whether what time does not mend is given up sooner (`Trouble.patience`), and even by who waits for
            ever what nobody can mend; not by who only looks.
        quiet: seconds in which a run that runs prints nothing of what is read, after which that is said; None: never.
    """

    admission: float | None = None
    startup: float | None = 600.0
    hopeless: bool = True
    quiet: float | None = None


ONLY_LOOKS = Patience(None, None, hopeless=False)
"""Of whoever is not answerable for the run."""


class Leaving:
    """Whether a run was deleted and its pods still have the time that they are given, in which they may print."""

    def __init__(self) -> None:
        self._gone_since: float | None = None

    def __call__(self, objects: RunObjects, now: float) -> bool:
        """Whether they have.

        Args:
            objects: the run's.
            now: seconds since the epoch.
        """
        workload, fate = objects.workload, objects.fate
        if workload is None or workload.ended or fate == "missing":
            return False
        if not fate:
            return workload.deleted is not None
        self._gone_since = self._gone_since or now
        # Deleted in the background it goes before its pods, which are told a moment later; orphans never are.
        left = [pod for pod in objects.pods if not pod.over]
        return any(now < (pod.due + OVERDUE if pod.due else self._gone_since + _FAREWELL) for pod in left)


class Keeper:
    """Decides about one run.

    Args:
        patience: when a run that stands still is given up.

    Attributes:
        gave_up: the run did not end, but its end is not waited for any more.
    """

    def __init__(self, patience: Patience) -> None:
        self.gave_up = False
        self._patience = patience
        self._waited_for, self._since = "", 0.0
        self._hopeless_for, self._hopeless_since = "", 0.0
        self._heard: float | None = None
        self._leaving = Leaving()
        self._released: set[str] = set()

    def heard(self, clock: float) -> None:
        """The run has printed something.

        Args:
            clock: seconds of a clock that is never set.
        """
        self._heard = clock

    def judged(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, silent: float
    ) -> RunStatus:
        """A status as it is to be told: given up, or not over yet where its pods still have time to end.

        Args:
            status: by its objects.
            before: what was told last.
            objects: the run's.
            now: seconds since the epoch.
            clock: seconds of a clock that is never set.
            silent: seconds for which the server has not answered.
        """
        if status.phase.final and self._leaving(objects, now):
            # Its ranks may be saving what they have; it is over when they are.
            return before.with_(notes=(*status.notes, LEAVING), progress=status.progress)
        if silent > UNREACHABLE_AFTER:
            # What was last heard says nothing of how long things have really taken.
            self._since = self._hopeless_since = self._heard = clock
            return status
        if status.phase.final:
            return status
        return self._quiet(self._given_up(status, objects, now, clock), clock)

    def to_release(self, objects: RunObjects, now: float, silent: float) -> list[LostPod]:
        """Pods of lost nodes that are to be deleted by force, because the job says so; each until `released`.

        Args:
            objects: the run's.
            now: seconds since the epoch.
            silent: seconds for which the server has not answered.
        """
        if silent > UNREACHABLE_AFTER:
            return []
        return [pod for pod in lost_pods(objects, now) if pod.due and pod.uid not in self._released]

    def released(self, pod: LostPod) -> None:
        """It has been deleted."""
        self._released.add(pod.uid)

    def _quiet(self, status: RunStatus, clock: float) -> RunStatus:
        """The status, and that nothing has been heard of a run for long that should have something to say."""
        if status.phase is not Phase.RUNNING or self._heard is None:
            self._heard = clock
        if self._patience.quiet is None or clock - self._heard < self._patience.quiet:
            return status
        return status.with_(
            notes=(*status.notes, f"no rank has printed a line for {self._patience.quiet:.0f} s; {QUIET}")
        )

    def _given_up(self, status: RunStatus, objects: RunObjects, now: float, clock: float) -> RunStatus:
        """The status, or the failure that stands behind it when patience is at an end."""
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
        """Why a run is given up for which waiting does not help; empty while it is not."""
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
    """What a run failed of that was given up."""
    if status.trouble is not None:
        return replace(
            status.trouble, message=f"{status.trouble.message.rstrip('.')}; {spent}", restarts=status.attempt
        )
    kind = FailureKind.UNSCHEDULABLE if status.reason == "Queued" else FailureKind.INFRASTRUCTURE
    where = f" ({status.reason})" if status.reason else ""
    message = f"the run is still {status.phase.value}{where}; {spent}"
    return Failure(kind=kind, message=message, advice=ADVICE[kind], restarts=status.attempt)
