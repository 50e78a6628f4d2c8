"""One run followed to its end: a listener is told, and what has to be done about the run is done.

Used by the backend's `start` and `wait`. All that is heard comes through hearing.py; watch/cluster/keeper.py decides
what follows, and here it is done: lost nodes' pods released, a run that stands still given up, a verdict written down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepset.backends.base import RunListener
from stepset.backends.kubernetes.client import UnreachableError
from stepset.backends.kubernetes.hearing import Hearing, Printed
from stepset.backends.kubernetes.refusals import REFUSES_AT_START
from stepset.backends.kubernetes.site import Site
from stepset.backends.kubernetes.stop import delete, kill_pods, release_pod, suspend
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.errors import InfrastructureError, StepsetError
from stepset.watch.cluster.keeper import ONLY_LOOKS, Keeper, Patience, silence
from stepset.watch.cluster.status import PROOF_PATIENCE, all_ended, proven
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.lines import Joiner, log_lines
from stepset.watch.state import Phase, RunStatus

TICK = 0.2
"""Seconds after which a follower looks up although nothing has come."""
WRITE_PATIENCE, WRITE_AGAIN = 60.0, 1.0
"""Seconds for which a server that is away is waited for when a run is over, and between two looks for it."""

Manifest = Mapping[str, Any]


class RunFollower:
    """Follows one run.

    Args:
        site: where it is.
        workload: its object on top, as it was made or read.
        listener: is told, from the thread that calls `follow`.
        sources: whose lines are wanted, such as `rank 0`; None: everybody's; empty: no log is read.
        patience: when to give up.
        keeper: it writes the verdict down, releases pods of lost nodes and gives up; others only look.
        notes: shown with the run from the start.
    """

    def __init__(
        self,
        site: Site,
        workload: Manifest,
        *,
        listener: RunListener | None = None,
        sources: frozenset[str] | None = None,
        patience: Patience | None = None,
        keeper: bool = True,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._site, self._workload = site, workload
        self._run = str(workload["metadata"]["name"])
        self._listener, self._sources = listener, sources
        self._keeper, self._notes = keeper, notes
        self._judge = Keeper(patience or ONLY_LOOKS)
        self._hearing = Hearing(site, workload, sources)
        self._joiners: dict[str, Joiner] = {}
        self._asked = self._answered = 0
        self._away = float("-inf")
        self._stop_by: Callable[[Site, Manifest], None] = delete
        self._left = self._ended = False
        self.status = RunStatus(self._run, self._run, "kubernetes", notes=notes)

    def cancel(self, by: Callable[[Site, Manifest], None] = delete) -> None:
        """Asks for the run's end; asked again, its pods are killed. From any thread or signal handler.

        Args:
            by: `stop.delete` or `stop.suspend`; a run that is suspended is not over, but `follow` comes back.

        Raises:
            InfrastructureError: nobody follows the run any more, and the server cannot be told.
        """
        self._stop_by = by
        self._asked += 1
        if self._ended and not self.status.phase.final:
            try:
                self._obey()  # nobody else does any more
            except StepsetError as error:
                raise InfrastructureError(f"run {self._run} goes on, and cannot be stopped: {error}") from error

    def leave(self) -> None:
        """Lets `follow` come back although the run goes on. From any thread or signal handler."""
        self._left = True

    def follow(self, timeout: float | None = None) -> RunStatus:
        """Blocks until the run is over or suspended by `cancel`, `leave` is called, or the time is up.

        Args:
            timeout: seconds; None: for ever.

        Returns:
            The final status, or the present one.

        Raises:
            InfrastructureError: the server does not let whoever asks look at the run.
        """
        if (known := verdict_of(self._workload)) is not None:
            self._tell(known)
            return known
        until = None if timeout is None else time.monotonic() + timeout
        try:
            self._follow(until)
        finally:
            self._ended = True
        return self.status

    def _follow(self, until: float | None) -> None:
        with self._hearing:
            while not (self.status.phase.final or self._left or self._rests or _past(until)):
                self._show(self._hearing.take(TICK))
                self._obey()
                self._look()
            if self.status.phase.final:
                self._finish()
            elif self._rests:
                self._show(self._hearing.rest())

    @property
    def _rests(self) -> bool:
        """Whether it was asked to be suspended, and is, and its pods have ended."""
        asked = self._answered and self._stop_by is suspend
        return bool(asked and self.status.phase is Phase.SUSPENDED and all_ended(self._hearing.objects))

    def _show(self, printed: Iterable[Printed]) -> None:
        """Hands on the lines that are wanted."""
        for each in printed:
            self._judge.heard(time.monotonic())
            if self._listener is None:
                continue
            batch, joiner = each.batch, self._joiners.setdefault(each.pod, Joiner())
            for line in log_lines(joiner.join(batch.lines)):
                if self._sources is None or line.source in self._sources:
                    self._listener.on_line(line)

    def _look(self) -> None:
        """Where the run is now, told where that is new; and what is to be done about it."""
        now = time.time()
        if not self._hearing.complete:
            self._tell(self.status.with_(notes=(*self._notes, *self._silence())))
            return
        status = self._hearing.status(now)
        objects, silent = self._hearing.objects, self._hearing.silent_for()
        status = self._judge.judged(status, self.status, objects, now, time.monotonic(), silent)
        if self._keeper and not status.phase.final:
            self._release(now)
        self._tell(status.with_(notes=(*self._notes, *self._hearing.unseen, *status.notes, *self._silence())))

    def _tell(self, status: RunStatus) -> None:
        if status != self.status:
            self.status = status
            if self._listener is not None:
                self._listener.on_status(status)

    def _may_pass(self, error: StepsetError) -> bool:
        """Whether an error may be over soon: the server is away, or was and does not know all roles yet."""
        now = time.monotonic()
        if isinstance(error, UnreachableError) or self._hearing.silent_for():
            self._away = now
        return now - self._away < REFUSES_AT_START

    def _silence(self) -> tuple[str, ...]:
        """Said while the server gives no answer."""
        return silence(self._site.connection.server, self._hearing.silent_for())

    def _obey(self) -> None:
        """Does what `cancel` asked for; what a silent server cannot be told is tried again."""
        while self._answered < self._asked:
            try:
                if self._answered == 0:
                    self._stop_by(self._site, self._workload)
                    self._hearing.objects.unwanted = self._stop_by is delete
                else:
                    kill_pods(self._site, self._hearing.objects)
            except StepsetError as error:
                if self._ended or self._asked > 1 or not self._may_pass(error):
                    raise
                return
            self._answered += 1

    def _release(self, now: float) -> None:
        """Deletes the pods of lost nodes where the job says so, once each."""
        for pod in self._judge.to_release(self._hearing.objects, now, self._hearing.silent_for()):
            try:
                release_pod(self._site, pod.name, pod.uid)
            except StepsetError as error:
                if self._may_pass(error):
                    return
                self._notes = (*self._notes, f"the pods of lost nodes are not released: {error}")
            self._judge.released(pod)

    def _finish(self) -> None:
        """The run is over: its last lines, its verdict, and whatever still holds resources."""
        self._show(self._hearing.rest())
        late = time.monotonic() + PROOF_PATIENCE
        while not (proven(self._hearing.objects) or _past(late)):
            self._show(self._hearing.take(TICK))
        status = self.status if self._judge.gave_up else self._hearing.status(time.time())
        if status.phase.final:
            notes = (*self._notes, *self._hearing.unseen, *status.notes, *self._hearing.problems)
            self._tell(status.with_(notes=tuple(dict.fromkeys(notes))))
        if self._keeper:
            self._write_down(self.status)

    def _write_down(self, final: RunStatus) -> None:
        """Writes the verdict, and takes away what still holds resources; waits a while for a server that is away."""
        until, asked = time.monotonic() + WRITE_PATIENCE, self._asked
        while True:
            try:
                if write_verdict(self._site, self._workload, final) and self._judge.gave_up:
                    suspend(self._site, self._workload)
                self._tell(final)
                return
            except StepsetError as error:
                again = self._may_pass(error) and not (_past(until) or self._left or self._asked > asked)
                word = "cannot be written down yet" if again else "could not be written down"
                self._tell(final.with_(notes=(*final.notes, f"its end {word}: {error}")))
                if not again:
                    return
            time.sleep(WRITE_AGAIN)


def _past(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until
