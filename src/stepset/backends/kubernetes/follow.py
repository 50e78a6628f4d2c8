"""One run followed to its end: what its collections and its pods' logs say, brought together and told.

Used by the backend's `start` and `wait`. Watchers and log readers have threads of their own and put what they hear into
one bounded queue; whoever calls `follow` takes it out, so that all that is known of the run is touched by one thread,
and a listener that is slow slows the readers down instead of filling memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, Queue
from typing import Any

from stepset.backends.base import RunListener
from stepset.backends.kubernetes.client import UnreachableError
from stepset.backends.kubernetes.run_logs import RunLogs
from stepset.backends.kubernetes.scope import of_run
from stepset.backends.kubernetes.site import Site
from stepset.backends.kubernetes.stop import delete, kill_pod, kill_pods, suspend
from stepset.backends.kubernetes.verdict import verdict_of, write_verdict
from stepset.backends.kubernetes.watcher import Watcher
from stepset.errors import StepsetError
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.trouble import lost_pods
from stepset.watch.cluster.workload import read_workload
from stepset.watch.diagnose import ADVICE
from stepset.watch.lines import Batch, Joiner, log_lines
from stepset.watch.state import Failure, FailureKind, Phase, RunStatus

TICK = 0.2
"""Seconds after which a follower looks up although nothing has come."""
LOG_PATIENCE = 15.0
"""Seconds that the last lines may take after a run is over."""
UNREACHABLE_AFTER = 10.0
"""Seconds without an answer after which it is said that the server gives none."""

_WAITING = 256
Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Patience:
    """How long a run may stand still before it is given up.

    Args:
        admission: seconds it may wait in a queue; None: for ever.
        startup: seconds from there until all of it runs, and again after each restart; None: for ever.
    """

    admission: float | None = None
    startup: float | None = 600.0


@dataclass
class _Waited:
    """Since when a run has been standing still, and for what."""

    for_what: str = ""
    since: float = field(default_factory=time.monotonic)

    def seconds(self, for_what: str) -> float:
        if for_what != self.for_what:
            self.for_what, self.since = for_what, time.monotonic()
        return time.monotonic() - self.since


@dataclass(frozen=True, slots=True)
class _Changed:
    """What a watcher heard."""

    watcher: int
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class _Printed:
    """What a pod printed."""

    pod: str
    batch: Batch


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
        self._patience, self._keeper, self._notes = patience or Patience(None, None), keeper, notes
        self._objects, self._reports = RunObjects(), Reports()
        self._inbox: Queue[_Changed | _Printed | StepsetError] = Queue(_WAITING)
        self._joiners: dict[str, Joiner] = {}
        known = read_workload(workload)
        ranks = known.ranks if known else None
        self._logs = RunLogs(site.connection, site.namespace, self._hear, sources=sources, ranks=ranks)
        self._watchers = [
            Watcher(site.connection, collection, partial(self._changed, number), self._inbox.put)
            for number, collection in enumerate(of_run(site, workload))
        ]
        self._listed: set[int] = set()
        self._waited = _Waited()
        self._released: set[str] = set()
        self._asked = self._answered = 0
        self._stop_by: Callable[[Site, Manifest], None] = delete
        self._left = False
        self.status = RunStatus(self._run, self._run, "kubernetes", notes=notes)

    def cancel(self, by: Callable[[Site, Manifest], None] = delete) -> None:
        """Asks for the run's end; asked again, its pods are killed. From any thread or signal handler.

        Args:
            by: `stop.delete` or `stop.suspend`.
        """
        self._stop_by = by
        self._asked += 1

    def leave(self) -> None:
        """Lets `follow` come back although the run goes on. From any thread or signal handler."""
        self._left = True

    def follow(self, timeout: float | None = None) -> RunStatus:
        """Blocks until the run is over, `leave` is called, or the time is up.

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
        for watcher in self._watchers:
            watcher.start()
        try:
            while not (self.status.phase.final or self._left or (until is not None and time.monotonic() >= until)):
                self._take(TICK)
                self._obey()
                self._look()
            if self.status.phase.final:
                self._finish()
            return self.status
        finally:
            self._end_threads()

    def _hear(self, pod: str, batch: Batch) -> None:
        self._inbox.put(_Printed(pod, batch))

    def _changed(self, watcher: int, changes: list[Change]) -> None:
        self._inbox.put(_Changed(watcher, changes))

    def _take(self, wait: float) -> bool:
        """What has come in, after waiting for the first of it; whether there was any."""
        try:
            news = self._inbox.get(timeout=wait)
        except Empty:
            return False
        for _ in range(_WAITING):
            self._understand(news)
            try:
                news = self._inbox.get_nowait()
            except Empty:
                break
        else:
            self._understand(news)
        return True

    def _understand(self, news: _Changed | _Printed | StepsetError) -> None:
        if isinstance(news, StepsetError):
            raise news
        if isinstance(news, _Printed):
            self._printed(news)
            return
        changes = news.changes
        if news.watcher not in self._listed:
            self._listed.add(news.watcher)
            uid = self._workload["metadata"]["uid"]
            if news.watcher == 0 and all(change.object["metadata"]["uid"] != uid for change in changes):
                changes = [Change("DELETED", self._workload, witnessed=False)]
        for change in changes:
            self._objects.see(change)
            if change.object.get("kind") == "Pod":
                self._logs.pod(change.object, gone=change.verb == "DELETED")

    def _printed(self, news: _Printed) -> None:
        batch = news.batch
        self._reports.see(news.pod, batch)
        if self._listener is None:
            return
        joiner = self._joiners.setdefault(news.pod, Joiner())
        rows = joiner.join(batch.lines) if batch.parts or joiner.waiting else _whole(batch)
        for line in log_lines(rows):
            if self._sources is None or line.source in self._sources:
                self._listener.on_line(line)

    def _look(self) -> None:
        """Where the run is now, told where that is new; and what is to be done about it."""
        now = time.time()
        if len(self._listed) < len(self._watchers):
            self._tell(self.status.with_(notes=(*self._notes, *self._silence())))
            return
        status = status_of(self._objects, self._reports, now)
        if self._keeper and not status.phase.final:
            self._release(now)
            status = self._given_up(status, now)
        self._tell(status.with_(notes=(*self._notes, *status.notes, *self._silence())))

    def _tell(self, status: RunStatus) -> None:
        if status != self.status:
            self.status = status
            if self._listener is not None:
                self._listener.on_status(status)

    def _silence(self) -> tuple[str, ...]:
        """Said while the server gives no answer."""
        if any(watcher.silent_for() > UNREACHABLE_AFTER for watcher in self._watchers):
            server = self._site.connection.server
            return (f"server {server} does not answer; the run goes on without us, and is looked for again",)
        return ()

    def _obey(self) -> None:
        """Does what `cancel` asked for; what a silent server cannot be told is tried again."""
        while self._answered < self._asked:
            try:
                if self._answered == 0:
                    self._stop_by(self._site, self._workload)
                else:
                    kill_pods(self._site, self._run)
            except UnreachableError:
                if self._asked > 1:
                    raise
                return
            self._answered += 1
            if self._answered == 1 and self._stop_by is suspend:
                self._left = True

    def _release(self, now: float) -> None:
        """Deletes the pods of lost nodes where the job says so, once each."""
        for pod in lost_pods(self._objects, now):
            if pod.due and pod.uid not in self._released:
                try:
                    kill_pod(self._site, pod.name, pod.uid)
                except UnreachableError:
                    return
                self._released.add(pod.uid)

    def _given_up(self, status: RunStatus, now: float) -> RunStatus:
        """The status, or the failure that stands behind it when patience is at an end."""
        queued = status.reason == "Queued"
        stuck = status.phase in (Phase.PENDING, Phase.RESTARTING) or status.reason == "NodeLost"
        allowed = self._patience.admission if queued else self._patience.startup
        what = "Queued" if queued else f"start {status.attempt}" if stuck else ""
        if self._waited.seconds(what) < (allowed if stuck and allowed is not None else float("inf")):
            return status
        spent = f"gave up after {allowed:.0f} s {'in the queue' if queued else 'without all of it running'}"
        return status.with_(phase=Phase.FAILED, failure=_failure(status, spent), finished=now, trouble=None)

    def _finish(self) -> None:
        """The run is over: its last lines, its verdict, and whatever still holds resources."""
        given_up = self.status.failure is not None and not status_of(self._objects, self._reports, 0.0).phase.final
        reader = threading.Thread(target=self._logs.finish, args=(LOG_PATIENCE,), daemon=True)
        reader.start()
        while reader.is_alive() or not self._inbox.empty():
            self._take(0.02)
        if not given_up:
            status = status_of(self._objects, self._reports, time.time())
            if status.phase.final:
                self._tell(status.with_(notes=(*self._notes, *status.notes)))
        if not self._keeper:
            return
        try:
            if write_verdict(self._site, self._workload, self.status) and given_up:
                suspend(self._site, self._workload)
        except StepsetError as error:
            self._tell(self.status.with_(notes=(*self.status.notes, f"its end could not be written down: {error}")))

    def _end_threads(self) -> None:
        for watcher in self._watchers:
            watcher.stop()
        self._logs.close()
        # Whoever waits for room in the queue must be able to end.
        until = time.monotonic() + 5
        while any(watcher.alive for watcher in self._watchers) and time.monotonic() < until:
            try:
                self._inbox.get(timeout=0.02)
            except Empty:
                continue


def _whole(batch: Batch) -> Iterator[tuple[str, bytes]]:
    return ((head.source, text) for head, text in batch.lines)


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
