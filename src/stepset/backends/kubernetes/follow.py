"""Follows one run until the run is finished, notifies an observer of changes, and acts on the run's state.

The module watch/cluster/follow_policy.py decides when the follower releases the pods of lost nodes, and when the
follower gives up a run that does not start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Protocol

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.refusal_grace import REFUSAL_GRACE
from stepset.backends.kubernetes.api.replies import UnreachableError
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.deleted_namespace import with_deleted_namespace
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs
from stepset.backends.kubernetes.stop import delete, kill_pods, release_pod, removal_notes, suspend
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.backends.kubernetes.watch.informer import FollowedRun, Informer
from stepset.errors import InfrastructureError, StepsetError
from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import RANKS
from stepset.unstructured import part, text
from stepset.watch.cluster.follow_policy import READ_ONLY, FollowPolicy, OutageNote, Timeouts
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import POD_ENDS_TIMEOUT, all_ended, status_of, success_confirmed
from stepset.watch.cluster.workload import read_ranks, verdict_of
from stepset.watch.retries import Retries

_log = logging.getLogger(__name__)

LOG_TIMEOUT = 15.0
"""If a finished run prints no lines for this number of seconds, the follower no longer waits for log lines."""
POLL = 1.0
"""The number of seconds after which the state is computed again if no object has changed, because of time limits."""
WRITE_TIMEOUT, WRITE_RETRY_INTERVAL = 60.0, 1.0
"""If the server is down, writing the verdict is retried every WRITE_RETRY_INTERVAL s, for WRITE_TIMEOUT s."""

_PAUSE_FACTOR = 5
"""The pause after a computation of the state, as a multiple of the duration of the computation."""

Stop = Callable[[NamespacedClient, Manifest], Awaitable[None]]


class Observer(Protocol):
    """Receives a run's output and states, one call at a time. Log readers wait until each call has returned."""

    async def on_output(self, output: PodOutput) -> None:
        """Receives log lines of a pod."""

    async def on_status(self, status: RunStatus) -> None:
        """Receives the run's state after each change, and the final state after the last line."""

    async def on_tick(self) -> None:
        """Is called after each computation of the state, even if the state has not changed."""


class RunFollower:
    """Follows one run.

    Args:
        workload: the run's workload. Only the fields apiVersion, kind and metadata are needed.
        informer: an informer that several runs share; default: a new informer for this run.
        sources: the sources whose log lines are needed, such as `rank 0`. Until a rank hangs, only logs that may
            contain lines of these sources are read. None means all sources. If the set is empty, no log is read.
        timeouts: the time limits after which the follower gives up a run that does not start; default: no limits.
        releases_pods: whether the follower releases the pods of lost nodes.
        writes_verdict: whether the follower writes the verdict; default: the value of `releases_pods`.
        notes: the notes that every status of the run contains.
        reports: the progress and events that the pods have reported so far.
        positions: a mapping from a pod's uid to the position up to which another process has consumed the pod's log.
        connections: limits the number of logs that are read at the same time.
        poll: the number of seconds after which the state is computed again if no object has changed.

    Attributes:
        status: the last computed state of the run.
    """

    def __init__(
        self,
        namespaced: NamespacedClient,
        workload: Manifest,
        observer: Observer,
        *,
        informer: Informer | None = None,
        sources: frozenset[str] | None = None,
        timeouts: Timeouts | None = None,
        releases_pods: bool = True,
        writes_verdict: bool | None = None,
        notes: tuple[str, ...] = (),
        reports: Reports | None = None,
        positions: Mapping[str, Mapping[str, Any]] | None = None,
        connections: LogConnections | None = None,
        poll: float = POLL,
    ) -> None:
        self._namespaced = namespaced.of_kind(resource_of(workload))
        self._workload, self._observer = workload, observer
        self._informer, self._sources, self._poll = informer, sources, poll
        self._releases_pods = releases_pods
        self._writes_verdict = releases_pods if writes_verdict is None else writes_verdict
        self._notes, self._reports = notes, reports or Reports()
        self._positions, self._connections = positions, connections
        self._policy, self._retries = FollowPolicy(timeouts or READ_ONLY, sources), Retries()
        self._outage = OutageNote(namespaced.client.server)
        self._run: FollowedRun | None = None
        self._logs: RunLogs | None = None
        self._reconnections = 0
        self._stop_requests = self._stops_sent = 0
        self._unreachable_at = float("-inf")
        self._stop: Stop = delete
        self._left = False
        self._wake: Callable[[], None] = lambda: None
        self._observer_lock = asyncio.Lock()
        name = str(workload["metadata"]["name"])
        self.status = self._shown = RunStatus(name, name, "kubernetes", notes=notes)

    @property
    def gave_up(self) -> bool:
        """Whether the follower has stopped waiting for a run that is not finished."""
        return self._policy.gave_up

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons why some logs could not be read completely, one line for each."""
        return () if self._logs is None else self._logs.problems

    @property
    def positions(self) -> dict[str, dict[str, Any]]:
        """A mapping from a pod's uid to a position, as plain data. The pod's log was consumed up to this position."""
        return {} if self._logs is None else self._logs.positions

    def cancel(self, stop: Stop = delete) -> None:
        """Asks the follower to stop the run. `stop` is the function `delete` or `suspend` of the module `stop`.

        A second call kills the run's pods. This method may be called from any thread.
        """
        self._stop = stop
        self._stop_requests += 1
        self._wake()

    def leave(self) -> None:
        """Makes `follow` return. The run continues. This method may be called from any thread."""
        self._left = True
        self._wake()

    async def follow(self, timeout: float | None = None) -> RunStatus:
        """Follows the run and returns its status.

        Returns when the run is finished, when `cancel` has suspended the run, when `leave` is called, or after
        `timeout` seconds.

        Raises InfrastructureError if the account cannot read the run.
        """
        if (known := verdict_of(self._workload)) is not None:
            await self._set_status(known)
            return known
        until = None if timeout is None else _now() + timeout
        async with self._following() as run:
            await self._until_over(run, until)
            if self.status.phase.final:
                await self._finish(run)
            elif self._suspended or _past(until):
                await self._all_read()
        return self.status

    async def send_stop_requests(self) -> None:
        """Sends the requests of `cancel` to the server.

        If the server does not answer, this method raises no error. The next call sends the requests again.
        """
        while self._stops_sent < self._stop_requests:
            try:
                if self._stops_sent == 0 or self._run is None:
                    await self._stop(self._namespaced, self._workload)
                    if self._run is not None:
                        self._run.objects.deleted_by_follower = self._stop is delete
                else:
                    await kill_pods(self._namespaced, self._run.objects)
            except StepsetError as error:
                if self._run is None or self._stop_requests > 1 or not self._may_be_temporary(error):
                    raise
                return
            self._stops_sent += 1

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[FollowedRun]:
        loop = asyncio.get_running_loop()
        shared: AbstractAsyncContextManager[Informer]
        shared = Informer(self._namespaced) if self._informer is None else nullcontext(self._informer)
        async with shared as informer, informer.follow(self._workload) as run:
            self._run = run
            self._wake = lambda: _call_soon(loop, run.changed.set)
            logs = self._logs = RunLogs(
                self._namespaced,
                self._consume,
                sources=self._sources,
                ranks=read_ranks(text(part(self._workload, "metadata", "annotations"), RANKS)),
                positions=self._positions,
                connections=self._connections,
            )
            try:
                yield run
            finally:
                self._wake = lambda: None
                with anyio.CancelScope(shield=True):
                    await logs.close()
                self._run = None

    @property
    def _suspended(self) -> bool:
        """Whether `cancel` has suspended the run and all pods of the run have terminated."""
        if not self._stops_sent or self._stop is not suspend or self._run is None:
            return False
        return self.status.phase is Phase.SUSPENDED and all_ended(self._run.objects)

    async def _until_over(self, run: FollowedRun, until: float | None) -> None:
        updated = False
        while not (self.status.phase.final or self._left or self._suspended or (updated and _past(until))):
            updated = True
            await self._next_change(run, until)
            await self.send_stop_requests()
            if (error := run.error or (self._logs.error if self._logs is not None else None)) is not None:
                raise error
            began = _now()
            await self._update(run)
            async with self._observer_lock:
                await self._observer.on_tick()
            # The state of a large run changes often and takes long to compute, so pause after each computation.
            await asyncio.sleep(min(self._poll, _PAUSE_FACTOR * (_now() - began)))

    async def _next_change(self, run: FollowedRun, until: float | None) -> None:
        """Waits until the run changes or `poll` seconds have passed, then passes changed pods to the log readers."""
        with anyio.move_on_after(self._poll if until is None else max(0.0, min(self._poll, until - _now()))):
            await run.changed.wait()
        run.changed.clear()
        assert self._logs is not None
        self._logs.see(run.take_pods())
        if run.reconnections != self._reconnections:
            self._reconnections = run.reconnections
            self._logs.reconnect()
        self._reports.prune(run.objects)

    async def _consume(self, output: PodOutput) -> None:
        if output.position is not None and not output.beside:
            self._policy.record_output(_now())
        # If there is no position, another process has already consumed these lines and their progress reports.
        known = output.position is None
        self._reports.see(output.pod, replace(output.batch, progress=[]) if known else output.batch)
        async with self._observer_lock:
            await self._observer.on_output(output)
        if self._run is not None and (output.batch.progress or output.batch.events):
            self._run.changed.set()

    def _current_status(self, run: FollowedRun) -> RunStatus:
        """Returns the current state."""
        status = self._policy.explained(status_of(run.objects, self._reports, time.time()))
        return status.with_(points=self._reports.points)

    async def _update(self, run: FollowedRun) -> None:
        """Computes the run's state, notifies the observer if the state has changed, and acts on the state."""
        silent = run.silent_for()
        outage = self._outage.notes(silent, _now())
        if not run.complete:
            await self._set_status(self.status.with_(notes=(*self._notes, *outage)))
            return
        try:
            current = self._current_status(run)
            status = self._policy.status_to_report(current, self.status, run.objects, time.time(), _now(), silent)
        except Exception as error:  # noqa: BLE001  # after an internal error, the run must continue
            await self._retry(error)
            return
        self._retries.succeeded()
        await self._show_progress()
        if self._releases_pods and not status.phase.final:
            await self._release(run, silent)
        status = status.with_(notes=(*self._notes, *run.access_notes, *status.notes, *outage))
        if status.phase.final:
            self.status = status  # _finish notifies the observer, after the last lines
        else:
            await self._set_status(status)

    async def _show_progress(self) -> None:
        """Notifies the observer of each new progress report except the last, which the next status contains."""
        for progress in self._reports.take_recent()[:-1]:
            await self._notify(self._shown.with_(progress=progress))

    async def _retry(self, error: Exception) -> None:
        """Reports that the state could not be computed, and pauses before the next try.

        Raises InfrastructureError after the last retry.
        """
        pause = self._retries.failed()
        problem = f"the state of run {self.status.name} cannot be computed: {repr(error)[:200]}"
        _log.warning(problem, exc_info=True)
        if self._retries.exhausted:
            raise InfrastructureError(f"{problem}; the run continues") from error
        notes = tuple(note for note in self.status.notes if note != problem)
        await self._set_status(self.status.with_(notes=(*notes, problem)))
        await asyncio.sleep(pause)

    async def _set_status(self, status: RunStatus) -> None:
        self.status = status
        if status != self._shown:
            await self._notify(status)

    async def _notify(self, status: RunStatus) -> None:
        self._shown = status
        async with self._observer_lock:
            await self._observer.on_status(status)

    def _may_be_temporary(self, error: StepsetError) -> bool:
        """Returns whether an error may be temporary.

        An error may be temporary while the server is down. A server that has just started may also report a temporary
        error, because it may not have loaded all roles.
        """
        now = _now()
        if isinstance(error, UnreachableError) or (self._run is not None and self._run.silent_for()):
            self._unreachable_at = now
        return now - self._unreachable_at < REFUSAL_GRACE

    async def _release(self, run: FollowedRun, silent: float) -> None:
        """Releases the pods of lost nodes if the job requests the release. Each pod is released only once."""
        for pod in self._policy.to_release(run.objects, time.time(), silent):
            try:
                await release_pod(self._namespaced, pod.name, pod.uid)
            except StepsetError as error:
                if self._may_be_temporary(error):
                    return
                self._notes = (*self._notes, f"the pods of lost nodes are not released: {error}")
            self._policy.released(pod)

    async def _finish(self, run: FollowedRun) -> None:
        """Reads the last log lines of a finished run, notifies the observer, and writes the verdict."""
        await self._all_read()
        with anyio.move_on_after(POD_ENDS_TIMEOUT):
            while not success_confirmed(run.objects):
                run.changed.clear()
                await run.changed.wait()
        await self._show_progress()
        status = self.status
        if not self.gave_up:
            with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
                status = self._current_status(run)
        if status.phase.final:
            if not self._stop_requests:
                status = await with_deleted_namespace(self._namespaced, status, read_only=not self._releases_pods)
            removed = removal_notes(self._workload) if self.gave_up else ()
            notes = (*self._notes, *run.access_notes, *status.notes, *self.problems, *removed)
            self.status = status.with_(notes=tuple(dict.fromkeys(notes)))
        await self._notify(self.status)
        if self._writes_verdict:
            await self._conclude(self.status)

    async def _all_read(self) -> None:
        assert self._logs is not None
        await self._logs.finish(LOG_TIMEOUT)

    async def _conclude(self, final: RunStatus) -> None:
        """Writes the verdict. If the follower gave up the run, suspends the run. Retries while the server is down."""
        until, requests = _now() + WRITE_TIMEOUT, self._stop_requests
        while True:
            try:
                try:
                    await write_verdict(self._namespaced, self._workload, final)
                finally:
                    if self.gave_up:  # free the resources even if the verdict is refused
                        await suspend(self._namespaced, self._workload)
                await self._set_status(final)
                return
            except StepsetError as error:
                ends = _past(until) or self._left or self._stop_requests > requests
                again = self._may_be_temporary(error) and not ends
                problem = "cannot be written yet" if again else "could not be written"
                await self._set_status(final.with_(notes=(*final.notes, f"the run's verdict {problem}: {error}")))
                if not again:
                    return
            await asyncio.sleep(WRITE_RETRY_INTERVAL)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _past(until: float | None) -> bool:
    return until is not None and _now() >= until
