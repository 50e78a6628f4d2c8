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
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.refusal_grace import REFUSAL_GRACE
from stepset.backends.kubernetes.api.replies import UnreachableError
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.deleted_namespace import with_deleted_namespace
from stepset.backends.kubernetes.listening import Observer
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs
from stepset.backends.kubernetes.stop import delete, kill_pods, release_pod, removal_notes, suspend
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.backends.kubernetes.watch.informer import FollowedRun, Informer
from stepset.errors import InfrastructureError, StepsetError
from stepset.run_status import Phase, Progress, RunStatus
from stepset.targets.metadata import RANKS
from stepset.unstructured import part, text
from stepset.watch.cluster.follow_policy import READ_ONLY, FollowPolicy, OutageNote, Timeouts, to_release
from stepset.watch.cluster.status import POD_ENDS_TIMEOUT, all_ended, status_of, success_confirmed
from stepset.watch.cluster.workload import read_ranks, verdict_of
from stepset.watch.retries import Retries
from stepset.watch.state.reports import Reports

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


@dataclass(frozen=True)
class FollowOptions:
    """How a follower follows a run.

    Args:
        sources: the sources whose log lines are needed, such as `rank 0`. Until a rank hangs, only logs that may
            contain lines of these sources are read. None means all sources. If the set is empty, no log is read.
        timeouts: the time limits after which the follower gives up a run that does not start; default: no limits.
        read_only: whether the follower releases no pods of lost nodes and writes no verdict.
        writes_verdict: whether a follower that is not `read_only` writes the verdict.
        notes: the notes that every status of the run contains.
        progress: the progress that another process has read.
        positions: a mapping from a pod's uid to the position up to which another process has consumed the pod's log.
        poll: the number of seconds after which the state is computed again if no object has changed.
    """

    sources: frozenset[str] | None = None
    timeouts: Timeouts = READ_ONLY
    read_only: bool = False
    writes_verdict: bool = True
    notes: tuple[str, ...] = ()
    progress: Progress | None = None
    positions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    poll: float = POLL


class RunFollower:
    """Follows one run.

    Args:
        workload: the run's workload. Only the fields apiVersion, kind and metadata are needed.
        informer: an informer that several runs share; default: a new informer for this run.

    Attributes:
        status: the last computed state of the run.
        logs: the readers of the logs of the run's pods.
        gave_up: whether the follower has stopped waiting for a run that is not finished.
    """

    def __init__(
        self,
        namespaced: NamespacedClient,
        workload: Manifest,
        observer: Observer,
        options: FollowOptions = FollowOptions(),
        informer: Informer | None = None,
    ) -> None:
        self._namespaced = namespaced.of_kind(resource_of(workload))
        self._workload, self._options, self._informer = workload, options, informer
        name = str(workload["metadata"]["name"])
        self.status = RunStatus(name, name, "kubernetes", notes=options.notes)
        self._observer, self._shown, self._reports = observer, self.status, Reports()
        self._reports.progress = options.progress
        self.logs = RunLogs(
            self._namespaced,
            self._consume,
            sources=options.sources,
            ranks=read_ranks(text(part(workload, "metadata", "annotations"), RANKS)),
            positions=options.positions,
            connections=None if informer is None else informer.connections,
        )
        self._policy, self._retries = FollowPolicy(options.timeouts, options.sources), Retries()
        self._outage = OutageNote(namespaced.client.server)
        self.gave_up = False
        self._released: set[str] = set()  # the uids of the released pods
        self._release_problems: tuple[str, ...] = ()
        self._run: FollowedRun | None = None
        self._stops: list[Stop] = []  # the requests to stop the run
        self._stops_sent = 0
        self._unreachable_at = float("-inf")
        self._left = False

    def cancel(self, stop: Stop = delete) -> None:
        """Asks the follower to stop the run. `stop` is the function `delete` or `suspend` of the module `stop`.

        A second call kills the run's pods. This method may be called from any thread.
        """
        self._stops.append(stop)
        self._wake()

    def leave(self) -> None:
        """Makes `follow` return. The run continues. This method may be called from any thread."""
        self._left = True
        self._wake()

    def _wake(self) -> None:
        if (run := self._run) is not None:
            run.wake()

    async def follow(self, timeout: float | None = None) -> RunStatus:
        """Follows the run and returns its status. May be called once.

        Returns when the run is finished, when `cancel` has suspended the run, when `leave` is called, or after
        `timeout` seconds.

        Raises InfrastructureError if the account cannot read the run.
        """
        until = None if timeout is None else _now() + timeout
        async with self._observer:
            if (known := verdict_of(self._workload)) is not None:
                await self._set_status(known)
                return known
            async with self._following() as run:
                await self._until_over(run, until)
                if self.status.phase.final:
                    await self._finish(run)
                elif self._suspended or _past(until):
                    await self.logs.finish(LOG_TIMEOUT)
        return self.status

    async def send_stop_requests(self) -> None:
        """Sends the requests of `cancel` to the server.

        If the server does not answer, this method raises no error. The next call sends the requests again.
        """
        while self._stops_sent < len(self._stops):
            try:
                if self._stops_sent == 0 or self._run is None:
                    await self._stops[-1](self._namespaced, self._workload)
                    if self._run is not None:
                        self._run.objects.deleted_by_follower = self._stops[-1] is delete
                else:
                    await kill_pods(self._namespaced, self._run.objects)
            except StepsetError as error:
                if self._run is None or len(self._stops) > 1 or not self._may_be_temporary(error):
                    raise
                return
            self._stops_sent += 1

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[FollowedRun]:
        shared: AbstractAsyncContextManager[Informer]
        shared = Informer(self._namespaced) if self._informer is None else nullcontext(self._informer)
        async with shared as informer, informer.follow(self._workload) as run:
            self._run = run
            try:
                yield run
            finally:
                with anyio.CancelScope(shield=True):
                    await self.logs.close()
                self._run = None

    @property
    def _suspended(self) -> bool:
        """Whether `cancel` has suspended the run and all pods of the run have terminated."""
        if not self._stops_sent or self._stops[-1] is not suspend or self._run is None:
            return False
        return self.status.phase is Phase.SUSPENDED and all_ended(self._run.objects)

    async def _until_over(self, run: FollowedRun, until: float | None) -> None:
        updated = False
        while not (self.status.phase.final or self._left or self._suspended or (updated and _past(until))):
            updated = True
            await self._next_change(run, until)
            await self.send_stop_requests()
            if (error := run.error or self.logs.error) is not None:
                raise error
            began = _now()
            await self._update(run)
            async with self.logs.turn:
                await self._observer.on_tick()
            # The state of a large run changes often and takes long to compute, so pause after each computation.
            await asyncio.sleep(min(self._options.poll, _PAUSE_FACTOR * (_now() - began)))

    async def _next_change(self, run: FollowedRun, until: float | None) -> None:
        """Waits until the run changes or `poll` seconds have passed, then passes changed pods to the log readers."""
        poll = self._options.poll
        with anyio.move_on_after(poll if until is None else max(0.0, min(poll, until - _now()))):
            await run.changed.wait()
        run.changed.clear()
        self.logs.see(run.take_pods())
        if run.reconnected:
            run.reconnected = False
            self.logs.reconnect()
        self._reports.prune(lambda: run.objects.history.known)

    async def _consume(self, output: PodOutput) -> None:
        if output.position is not None and not output.beside:
            self._policy = replace(self._policy, last_output=_now())
        # If there is no position, another process has already consumed these lines and their progress reports.
        known = output.position is None
        self._reports.see(output.pod, replace(output.batch, progress=[]) if known else output.batch)
        await self._observer.on_output(output)
        if self._run is not None and (output.batch.progress or output.batch.events):
            self._run.changed.set()

    def _current_status(self, run: FollowedRun) -> RunStatus:
        """Returns the current state, before the policy is applied."""
        return status_of(run.objects, self._reports, time.time()).with_(points=self._reports.points)

    async def _update(self, run: FollowedRun) -> None:
        """Computes the run's state, notifies the observer if the state has changed, and acts on the state."""
        silent, now, clock = run.silent_for(), time.time(), _now()
        self._outage = self._outage.see(silent, clock)
        outage = self._outage.at(clock)
        if not run.complete:
            await self._set_status(self.status.with_(notes=(*self._options.notes, *outage)))
            return
        try:
            decision = self._policy.decide(self._current_status(run), self.status, run.objects, now, clock, silent)
        except Exception as error:  # noqa: BLE001  # after an internal error, the run must continue
            await self._retry(error)
            return
        self._policy, status, self.gave_up = decision
        self._retries.succeeded()
        await self._show_progress()
        if not (self._options.read_only or status.phase.final):
            await self._release(run, silent)
        status = self._with_notes(run, status, outage)
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
        async with self.logs.turn:
            await self._observer.on_status(status)

    def _with_notes(self, run: FollowedRun, status: RunStatus, more: tuple[str, ...]) -> RunStatus:
        return status.with_(notes=self._options.notes + self._release_problems + run.access_notes + status.notes + more)

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
        for pod in to_release(run.objects, self._released, time.time(), silent):
            try:
                await release_pod(self._namespaced, pod.name, pod.uid)
            except StepsetError as error:
                if self._may_be_temporary(error):
                    return
                self._release_problems = (*self._release_problems, f"the pods of lost nodes are not released: {error}")
            self._released.add(pod.uid)

    async def _finish(self, run: FollowedRun) -> None:
        """Reads the last log lines of a finished run, notifies the observer, and writes the verdict."""
        await self.logs.finish(LOG_TIMEOUT)
        with anyio.move_on_after(POD_ENDS_TIMEOUT):
            while not success_confirmed(run.objects):
                run.changed.clear()
                await run.changed.wait()
        await self._show_progress()
        status = self.status
        if not self.gave_up:
            with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
                status = self._policy.explained(self._current_status(run))
        if status.phase.final:
            if not self._stops:
                status = await with_deleted_namespace(self._namespaced, status, read_only=self._options.read_only)
            removed = removal_notes(self._workload) if self.gave_up else ()
            status = self._with_notes(run, status, (*self.logs.problems, *removed))
            self.status = status.with_(notes=tuple(dict.fromkeys(status.notes)))
        await self._notify(self.status)
        if self._options.writes_verdict and not self._options.read_only:
            await self._conclude(self.status)

    async def _conclude(self, final: RunStatus) -> None:
        """Writes the verdict. If the follower gave up the run, suspends the run. Retries while the server is down."""
        until, requests = _now() + WRITE_TIMEOUT, len(self._stops)
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
                ends = _past(until) or self._left or len(self._stops) > requests
                again = self._may_be_temporary(error) and not ends
                problem = "cannot be written yet" if again else "could not be written"
                await self._set_status(final.with_(notes=(*final.notes, f"the run's verdict {problem}: {error}")))
                if not again:
                    return
            await asyncio.sleep(WRITE_RETRY_INTERVAL)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _past(until: float | None) -> bool:
    return until is not None and _now() >= until
