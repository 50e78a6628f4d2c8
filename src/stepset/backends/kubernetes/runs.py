"""Creates, finds, follows, reads and ends runs on a cluster, asynchronously."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from stepset.backends.base import RunListener, RunRequest
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import items_of
from stepset.backends.kubernetes.api.resources import WORKLOADS, Manifest, resource_of
from stepset.backends.kubernetes.find import (
    find,
    find_owned,
    pods_with_logs,
    read_all,
    read_objects,
    read_run,
)
from stepset.backends.kubernetes.follow import Observer, RunFollower, Stop
from stepset.backends.kubernetes.listening import ListenerObserver, OutputStream
from stepset.backends.kubernetes.logs.reading import merged_rows
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.backends.kubernetes.stop import delete, has_pods, kill_pods, suspend
from stepset.backends.kubernetes.submit.abandoned import remove_half_submitted
from stepset.backends.kubernetes.submit.pod_changes import ChangePod
from stepset.backends.kubernetes.submit.submission import Submitted, submit
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.backends.prune import PruneRule
from stepset.errors import BadInputError, InfrastructureError, RunNotFoundError
from stepset.run_status import Failure, FailureKind, LogLine, Phase, RunStatus
from stepset.spec.names import check_dns_1035
from stepset.targets.request import RenderRequest, check_target
from stepset.watch.cluster.follow_policy import Timeouts
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.workload import verdict_of
from stepset.watch.diagnose import ADVICE
from stepset.watch.lines import Joiner, log_lines

Rows = list[bytes]

_POLL = 0.5
"""Seconds between two checks whether the pods of a cancelled run have ended."""


@dataclass(frozen=True)
class _Cancelled:
    """A run that was cancelled: its workload, its last known state, and its objects."""

    workload: Manifest
    status: RunStatus
    objects: RunObjects


class ClusterRuns:
    """The runs in a namespace. An unknown `target` raises BadInputError.

    Every method raises InfrastructureError if the server cannot be reached or denies access.

    Args:
        target: the kind of workload; None: jobset for new runs, and every kind when runs are looked up.
        sources: the sources whose lines listeners receive, such as `rank 0`; default: all.
        timeouts: the time limits after which a follower gives up a run that does not start.
        change_pod: a function that is applied to the metadata and spec of every pod template; default: none.
    """

    def __init__(
        self,
        namespaced: NamespacedClient,
        *,
        target: str | None = None,
        sources: frozenset[str] | None = None,
        timeouts: Timeouts | None = None,
        change_pod: ChangePod | None = None,
    ) -> None:
        if target is not None:
            check_target(target)
        self.namespaced = namespaced.granting(target or "jobset")
        self._target = target or "jobset"
        self._targets: Sequence[str] = (target,) if target else tuple(WORKLOADS)
        self._sources, self._timeouts = sources, timeouts or Timeouts()
        self._change_pod = change_pod
        self._cancelled: dict[str, _Cancelled] = {}

    async def make(self, request: RunRequest) -> tuple[Submitted, tuple[str, ...]]:
        """Creates a run, or finds the one that the same owner has created before; returns it with its first notes.

        Raises BadInputError if the job is not valid or the server refuses it; no object remains then.
        """
        rendered = await self._rendered(request)
        made = await submit(self.namespaced, rendered, self._target, self._change_pod)
        return made, (*rendered.plan.notes, *request.sources.notes, *made.warnings)

    async def submit(self, request: RunRequest) -> RunStatus:
        """Creates a run that the caller does not follow; raises as `make` does."""
        made, notes = await self.make(request)
        run = str(made.workload["metadata"]["name"])
        return RunStatus(run, request.job.name, "kubernetes", created=time.time(), notes=notes)

    @asynccontextmanager
    async def following(
        self,
        workload: Manifest,
        listener: RunListener | None = None,
        notes: tuple[str, ...] = (),
        *,
        read_only: bool = False,
    ) -> AsyncIterator[RunFollower]:
        """Yields a follower of a run; `notes` are shown with the run from the start.

        `listener` receives lines and states in a separate thread. With `read_only` the follower writes no verdict and
        releases no pods.
        """
        async with self.observer(listener) as observer:
            yield self.follower(workload, observer, notes, read_only=read_only)

    def observer(self, listener: RunListener | None) -> ListenerObserver:
        """Returns an observer that calls a listener with states, and with lines of the wanted sources."""
        return ListenerObserver(listener, self._sources)

    def follower(
        self, workload: Manifest, observer: Observer, notes: tuple[str, ...] = (), *, read_only: bool = False
    ) -> RunFollower:
        """Returns a follower of a run; the arguments are those of `following`."""
        return RunFollower(
            self.namespaced,
            workload,
            observer,
            sources=frozenset() if read_only else self._sources,
            timeouts=None if read_only else self._timeouts,
            releases_pods=not read_only,
            notes=notes,
        )

    async def workload(self, name: str, uid: str = "") -> Manifest | None:
        """Returns the workload of the run `name`; None if it does not exist or its uid is not `uid` (if given)."""
        try:
            found = await find(self.namespaced, name, self._targets)
        except RunNotFoundError:
            return None
        about = found["metadata"]
        return found if about["name"] == name and uid in ("", about["uid"]) else None

    async def owned(self, owner: str) -> Sequence[Manifest]:
        """Returns the workloads of all runs with this owner, also of those that are over."""
        return await find_owned(self.namespaced, owner, self._targets)

    async def find(self, name: str) -> Manifest:
        """Returns the workload of a run; raises as `status` does."""
        return await find(self.namespaced, name, self._targets)

    async def read(self, workload: Manifest) -> RunStatus:
        """Returns the state of a run."""
        return await read_run(self.namespaced, workload, time.time())

    async def status(self, name: str) -> RunStatus:
        """Returns the state of a run, or of a job's newest run; raises RunNotFoundError if there is none."""
        return await self.read(await self.find(name))

    async def list(self) -> list[RunStatus]:
        """Returns the state of every run in the namespace, the newest first."""
        found = [status for _, status in await read_all(self.namespaced, time.time(), self._targets)]
        return sorted(found, key=lambda run: run.created, reverse=True)

    async def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the ended runs that a rule selects; `dry_run` deletes nothing. Returns the runs, the newest first."""
        now = time.time()
        found = await read_all(self.namespaced, now, self._targets)
        selected = [(workload, status) for workload, status in found if rule.selects(status, now)]
        for workload, _ in () if dry_run else selected:
            await delete(self.namespaced.of_kind(resource_of(workload)), workload)
        return sorted((status for _, status in selected), key=lambda run: run.created, reverse=True)

    def output(self, workload: Manifest, sources: frozenset[str] | None) -> AsyncGenerator[PodOutput, None]:
        """Yields the output of a run's pods until the run is over; skips pods that hold no lines of `sources`."""

        async def follow(send: Callable[[PodOutput], Awaitable[None]]) -> None:
            follower = RunFollower(self.namespaced, workload, OutputStream(send), sources=sources, releases_pods=False)
            await follower.follow()
            if follower.problems:
                raise InfrastructureError(follower.problems[0])

        return items_of(follow)

    async def lines(
        self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Yields the lines of `sources` (default: all) that a run's pods still hold, in the order of their times.

        `follow` continues until the run is over, and yields lines as they are printed. If some lines cannot be read,
        raises InfrastructureError after the others.
        """
        workload = await self.find(name)
        if follow and verdict_of(workload) is None:
            joiners: dict[str, Joiner] = {}
            async with aclosing(self.output(workload, sources)) as outputs:
                async for output in outputs:
                    for line in log_lines(joiners.setdefault(output.pod, Joiner()).join(output.batch.lines)):
                        if sources is None or line.source in sources:
                            yield line
            return
        async with aclosing(self.rows(workload, sources)) as blocks:
            async for rows in blocks:
                for row in rows:
                    yield line_of(row)

    async def rows(self, workload: Manifest, sources: frozenset[str] | None) -> AsyncGenerator[Rows, None]:
        """Yields the lines that `lines` yields without `follow`, in blocks of rows `[source] text`."""
        pods = await pods_with_logs(self.namespaced, workload, sources)
        namespaced = self.namespaced.of_kind(resource_of(workload))
        async with aclosing(merged_rows(namespaced, pods, sources)) as blocks:
            async for rows in blocks:
                yield rows

    async def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        """Returns the final status of a run, or its current one after `timeout` seconds; raises as `status` does."""
        try:
            workload = await self.find(name)
        except RunNotFoundError:
            if name in self._cancelled:
                return await self._ended(self._cancelled[name], timeout)
            raise
        async with self.following(workload, read_only=True) as follower:
            return await follower.follow(timeout)

    async def cancel(self, name: str) -> RunStatus:
        """Deletes a run and returns its previous state; the second call kills its pods. Raises as `status` does."""
        try:
            workload = await self.find(name)
        except RunNotFoundError:
            if name not in self._cancelled:
                raise
            await kill_pods(self.namespaced, self._cancelled[name].objects)
            return self._cancelled[name].status
        run, uid = str(workload["metadata"]["name"]), str(workload["metadata"]["uid"])
        namespaced, status = self.namespaced.of_kind(resource_of(workload)), await self.read(workload)
        deleting = workload["metadata"].get("deletionTimestamp")
        if verdict_of(workload) is not None or (status.phase.final and not deleting):
            return status
        objects = await read_objects(namespaced, workload)
        if run in self._cancelled and self._cancelled[run].workload["metadata"]["uid"] == uid:
            await kill_pods(namespaced, objects)
        else:
            await delete(namespaced, workload)
        self._cancelled[run] = _Cancelled(workload, status, objects)
        return status

    async def _ended(self, cancelled: _Cancelled, timeout: float | None) -> RunStatus:
        """Waits until the pods of a cancelled run have ended; returns its last state."""
        until = None if timeout is None else time.monotonic() + timeout
        while await has_pods(self.namespaced, cancelled.workload):
            if until is not None and time.monotonic() >= until:
                return cancelled.status
            await asyncio.sleep(_POLL)
        return _cancelled(cancelled.status)

    async def gone(self, workload: Manifest) -> bool:
        """Whether neither a run nor its pods exist any longer, so that another run may have its name and its files."""
        about = workload["metadata"]
        if await self.workload(str(about["name"]), str(about["uid"])) is not None:
            return False
        return not await has_pods(self.namespaced, workload)

    async def conclude(self, workload: Manifest, status: RunStatus, *, stop: bool) -> None:
        """Writes a final status as the verdict of a run that no process follows; `stop` also suspends the run."""
        try:
            await write_verdict(self.namespaced, workload, status)
        finally:
            if stop:
                await suspend(self.namespaced, workload)

    async def end(self, workload: Manifest, how: Stop = delete) -> None:
        """Ends a run by `stop.delete` or `stop.suspend`; does nothing if it no longer exists."""
        await how(self.namespaced, workload)

    async def _rendered(self, request: RunRequest) -> RenderRequest:
        name = request.name or f"{request.job.name}-{secrets.token_hex(3)}"
        try:
            check_dns_1035(name)
        except ValueError as error:
            raise BadInputError(f"name: {error}") from error
        await remove_half_submitted(self.namespaced, self._target)
        from stepset.rendering import make_request

        return make_request(
            request.job,
            request.sources,
            run=name,
            namespace=self.namespaced.namespace,
            owner=request.owner,
            attempt=request.attempt,
            owned_by=request.owned_by,
        )


def line_of(row: bytes) -> LogLine:
    """Returns a row `[source] text` as a line."""
    head, _, text = row.partition(b"] ")
    return LogLine(head[1:].decode(), text.decode("utf-8", "replace"))


def _cancelled(before: RunStatus) -> RunStatus:
    """Returns the final state of a cancelled run that no longer exists, from its last known state."""
    kind = FailureKind.CANCELLED
    failure = Failure(kind=kind, message=f"run {before.name} was cancelled.", advice=ADVICE[kind])
    return before.with_(phase=Phase.FAILED, reason="", failure=failure, finished=time.time())
