"""`ClusterRuns`, whose asynchronous methods create, find, follow, read and stop runs on a cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.base import LogSelection, RunListener, RunRequest, TimedRow
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.pod_command import PodCommand
from stepset.backends.kubernetes.api.portal import items_of
from stepset.backends.kubernetes.api.resources import WORKLOADS, Manifest, resource_of
from stepset.backends.kubernetes.find import (
    check_free,
    find,
    find_owned,
    pods_with_logs,
    read_all,
    read_objects,
    read_run,
)
from stepset.backends.kubernetes.follow import FollowOptions, RunFollower, Stop
from stepset.backends.kubernetes.listening import ListenerObserver, OutputStream
from stepset.backends.kubernetes.logs.reading import LogRange, merged_rows
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.backends.kubernetes.logs.selection import existing_rows, new_rows
from stepset.backends.kubernetes.pod_exec import pod_command
from stepset.backends.kubernetes.stop import delete, delete_ended, has_pods, kill_pods, suspend
from stepset.backends.kubernetes.submit.abandoned import remove_half_submitted
from stepset.backends.kubernetes.submit.pod_changes import ChangePod, with_changed_pods
from stepset.backends.kubernetes.submit.submission import Submitted, create_objects
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.backends.prune import PruneRule, check_deletable, not_a_run
from stepset.backends.run_names import new_run_name
from stepset.defaults import TARGET
from stepset.errors import InfrastructureError, RunNotFoundError
from stepset.run_status import Failure, FailureKind, LogLine, Phase, RunStatus
from stepset.targets.request import RenderRequest, check_target
from stepset.watch.advice import ADVICE
from stepset.watch.cluster.follow_policy import Timeouts
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.terminations import was_deleted
from stepset.watch.cluster.workload import read_workload, stored_fields, verdict_of
from stepset.watch.lines import line_of, log_lines
from stepset.watch.live_lines import LiveLine, live_block, open_states
from stepset.watch.present.sentences import end_sentence

_log = logging.getLogger(__name__)

Rows = list[bytes]

_POLL = 0.5
"""The interval in seconds at which the pods of a cancelled run are read until they have terminated."""


@dataclass(frozen=True)
class _Cancelled:
    """A cancelled run: its workload, its last known state, its objects, and whether its pods were killed."""

    workload: Manifest
    status: RunStatus
    objects: RunObjects
    killed: bool = False


class ClusterRuns:
    """The runs in a namespace.

    The constructor raises BadInputError if `target` is unknown. Every method raises InfrastructureError if the server
    cannot be reached or denies access.

    Args:
        target: the kind of workload. None means that new runs are JobSets, and that runs of every kind are found.
        sources: the sources whose log lines the listeners receive, such as `rank 0`; default: all sources.
        timeouts: the time limits after which a follower gives up a run that does not start.
        change_pod: a function that changes every pod template; default: pod templates are not changed.
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
        self.namespaced = namespaced.granting(target or TARGET)
        self._target = target or TARGET
        self._targets: Sequence[str] = (target,) if target else tuple(WORKLOADS)
        self._sources, self._timeouts = sources, timeouts or Timeouts()
        self._change_pod = change_pod
        self._cancelled: dict[str, _Cancelled] = {}
        self._warnings = set[str]()  # the warnings that were written to the log

    async def make(self, request: RunRequest) -> tuple[Submitted, tuple[str, ...]]:
        """Creates a run, or finds the run that the same owner has already created. Returns the run and its notes.

        Raises BadInputError if the job is not valid or the server refuses the job. Then no object of the run remains.
        """
        from stepset.rendering import make_request  # not at the top, because code that reads runs needs no job model
        from stepset.sources import shipped_note
        from stepset.targets.notes import cluster_notes

        name = new_run_name(request.job.name, request.name)
        rendered = make_request(
            request.job,
            request.sources,
            run=name,
            namespace=self.namespaced.namespace,
            owner=request.owner,
            attempt=request.attempt,
            owned_by=request.owned_by,
        )
        # Before the first request, because an error of the job does not depend on the server. In a thread, because
        # rendering a large job takes long, and `change_pod` may block.
        objects = await asyncio.to_thread(_render, rendered, self._target, self._change_pod)
        await remove_half_submitted(self.namespaced, self._target)
        if request.name is not None and request.owner is None:
            await check_free(self.namespaced, name)
        made = await create_objects(self.namespaced, rendered, objects, self._target, self._change_pod, request.orphan)
        notes = (*shipped_note(request.sources), *request.notes, *rendered.plan.notes, *request.sources.notes)
        return made, (*notes, *cluster_notes(request.job), *made.warnings)

    async def submit(self, request: RunRequest) -> RunStatus:
        """Creates a run that the caller does not follow. Raises the errors of `make`."""
        made, notes = await self.make(request)
        run = str(made.workload["metadata"]["name"])
        status = RunStatus(run, request.job.name, "kubernetes", created=time.time(), notes=notes)
        workload = read_workload(made.workload)
        return status if workload is None else status.with_(**stored_fields(workload))

    def follower(
        self,
        workload: Manifest,
        listener: RunListener | None = None,
        notes: tuple[str, ...] = (),
        *,
        read_only: bool = False,
    ) -> RunFollower:
        """Returns a follower of a run. `notes` are the notes that every status of the run contains.

        `listener` receives log lines and states, in a separate thread. If `read_only` is true, the follower reads no
        logs, applies no time limits, writes no verdict and releases no pods.
        """
        if read_only:
            options = FollowOptions(frozenset(), read_only=True, notes=notes)
        else:
            options = FollowOptions(self._sources, self._timeouts, notes=notes)
        return RunFollower(self.namespaced, workload, ListenerObserver(listener, options.sources), options)

    async def workload(self, name: str, uid: str = "") -> Manifest | None:
        """Returns the workload of a run. Returns None if no run has this name, or if the run does not have `uid`."""
        try:
            found = await find(self.namespaced, name, self._targets)
        except RunNotFoundError:
            return None
        about = found["metadata"]
        return found if about["name"] == name and uid in ("", about["uid"]) else None

    async def owned(self, owner: str) -> Sequence[Manifest]:
        """Returns the workloads of all runs with this owner, including finished runs."""
        return await find_owned(self.namespaced, owner, self._targets)

    async def find(self, name: str) -> Manifest:
        """Returns the workload of a run. Raises the errors of `status`."""
        return await find(self.namespaced, name, self._targets)

    async def read(self, workload: Manifest) -> RunStatus:
        """Returns the state of a run."""
        return await read_run(self.namespaced, workload, time.time())

    async def status(self, name: str) -> RunStatus:
        """Returns the state of a run, or of a job's newest run, with its progress and hang. Raises RunNotFoundError."""
        return await read_run(self.namespaced, await self.find(name), time.time(), logs=True)

    async def list(self, *, all_namespaces: bool = False) -> list[RunStatus]:
        """Returns the state of every run in the namespace, or in all namespaces. The newest run comes first."""
        namespaced = replace(self.namespaced, namespace="") if all_namespaces else self.namespaced
        hidden: list[InfrastructureError] = []
        found = [status for _, status in await read_all(namespaced, time.time(), self._targets, hidden.append)]
        if hidden and not found:
            raise hidden[0]
        for error in hidden:
            self._warn_once(error)
        return sorted(found, key=lambda run: run.created, reverse=True)

    def _warn_once(self, error: InfrastructureError) -> None:
        text = f"runs with the target {TARGET} are not listed: {error}"
        if text not in self._warnings:
            self._warnings.add(text)
            _log.warning(text)

    async def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes the finished runs that a rule selects, and returns them. If `dry_run` is true, deletes no run."""
        now = time.time()
        found = await read_all(self.namespaced, now, self._targets, self._warn_once)
        selected = [(workload, status) for workload, status in found if rule.selects(status, now)]
        for workload, _ in () if dry_run else selected:
            await delete_ended(self.namespaced.of_kind(resource_of(workload)), workload)
        return sorted((status for _, status in selected), key=lambda run: run.created, reverse=True)

    async def delete_ended(self, names: Sequence[str], *, dry_run: bool = False) -> Sequence[RunStatus]:
        """Deletes finished runs, and returns them. `Backend.delete` describes the arguments and errors."""
        workloads = [await self.find(name) for name in dict.fromkeys(names)]
        for name, workload in zip(dict.fromkeys(names), workloads, strict=True):
            if workload["metadata"]["name"] != name:
                raise not_a_run(name, str(workload["metadata"]["name"]))
        found = [await self.read(workload) for workload in workloads]
        check_deletable(found)
        for workload in () if dry_run else workloads:
            await delete_ended(self.namespaced.of_kind(resource_of(workload)), workload)
        return found

    def output(
        self,
        workload: Manifest,
        sources: frozenset[str] | None,
        positions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> AsyncGenerator[PodOutput, None]:
        """Yields the output of a run's pods until the run is finished.

        This method reads only logs that may contain lines of `sources`. `positions` maps a pod's uid to the position in
        the pod's log at which the output begins; default: the beginning of the log.

        This method raises InfrastructureError after the last output if some lines cannot be read, or if the run or one
        of its pods was deleted before the run had finished.
        """

        async def follow(send: Callable[[PodOutput], Awaitable[None]]) -> None:
            options = FollowOptions(sources, read_only=True, positions=positions or {})
            follower = RunFollower(self.namespaced, workload, OutputStream(send), options)
            status = await follower.follow()
            if was_deleted(status):
                raise InfrastructureError(end_sentence(status))
            if follower.logs.problems:
                raise InfrastructureError(follower.logs.problems[0])

        return items_of(follow)

    async def lines(
        self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Yields the log lines of the existing pods of a run, in the order of the lines' timestamps.

        If `follow` is true, this method yields new lines when they are printed, until the run is finished. `sources`
        are the sources whose lines are yielded; default: all sources.

        If some lines cannot be read, this method yields all other lines, then raises InfrastructureError. This method
        raises the same error if a followed run or one of its pods is deleted.
        """
        async with aclosing(self.live_lines(name, sources, follow=follow)) as blocks:
            async for block in blocks:
                for line in block:
                    if isinstance(line, LogLine):
                        yield line

    async def live_lines(
        self, name: str, sources: frozenset[str] | None, *, follow: bool = True
    ) -> AsyncGenerator[Sequence[LiveLine], None]:
        """Yields blocks that contain the lines of `lines`, and the states of incomplete lines if `follow` is true."""
        workload = await self.find(name)
        if not follow or verdict_of(workload) is not None:
            async with aclosing(self.rows(workload, sources)) as blocks:
                async for rows in blocks:
                    yield [line_of(row) for row in rows]
            return
        states: dict[str, str] = {}
        async with aclosing(self.output(workload, sources)) as outputs:
            async for output in outputs:
                before, states = states, open_states(states, output.batch)
                yield live_block(log_lines(output.complete_lines()), before, states, sources)

    async def rows(self, workload: Manifest, sources: frozenset[str] | None) -> AsyncGenerator[Rows, None]:
        """Yields the lines of `lines(follow=False)` in blocks of rows. A row has the form `[source] text`."""
        pods = await pods_with_logs(self.namespaced, workload, sources)
        namespaced = self.namespaced.of_kind(resource_of(workload))
        async with aclosing(merged_rows(namespaced, pods, sources)) as blocks:
            async for _, rows in blocks:
                yield rows

    async def timed_rows(self, name: str, selection: LogSelection) -> AsyncGenerator[Sequence[TimedRow], None]:
        """Yields the selected log lines with their times. Raises the errors of `Backend.timed_rows`."""
        workload, wanted = await self.find(name), LogRange(selection.since)
        over, sources = verdict_of(workload) is not None, selection.sources
        pods = await pods_with_logs(self.namespaced, workload, sources)
        namespaced, run = self.namespaced.of_kind(resource_of(workload)), str(workload["metadata"]["name"])
        async with aclosing(existing_rows(namespaced, run, pods, selection, wanted)) as blocks:
            async for block in blocks:
                yield block
        if selection.follow and not selection.previous and not over:
            async with aclosing(self.output(workload, sources, wanted.positions)) as outputs:
                async for block in new_rows(outputs, sources):
                    yield block

    async def pod_command(self, name: str, source: str, command: Sequence[str]) -> PodCommand:
        """Returns the command that `exec` starts in the pod of a source. Raises the errors of `Backend.exec`."""
        workload = await self.find(name)
        namespaced = self.namespaced.of_kind(resource_of(workload))
        return await pod_command(namespaced, await self.read(workload), source, command)

    async def wait(self, name: str, timeout: float | None = None, listener: RunListener | None = None) -> RunStatus:
        """Waits at most `timeout` seconds until a run is finished. `listener` receives the states of the run."""
        try:
            workload = await self.find(name)
        except RunNotFoundError:
            if name in self._cancelled:
                return await self._ended(self._cancelled[name], timeout)
            raise
        follower = self.follower(workload, listener, read_only=True)
        status, cancelled = await follower.follow(timeout), self._cancelled.get(name)
        killed = cancelled is not None and cancelled.killed and was_deleted(status)
        return _final(replace(cancelled, status=status)) if cancelled is not None and killed else status

    async def cancel(self, name: str) -> RunStatus:
        """Deletes a run, and returns the state of the run before this call. A second call kills the run's pods."""
        try:
            workload = await self.find(name)
        except RunNotFoundError:
            if name not in self._cancelled:
                raise
            await kill_pods(self.namespaced, self._cancelled[name].objects)
            self._cancelled[name] = replace(self._cancelled[name], killed=True)
            return self._cancelled[name].status
        run, uid = str(workload["metadata"]["name"]), str(workload["metadata"]["uid"])
        namespaced, status = self.namespaced.of_kind(resource_of(workload)), await self.read(workload)
        deleting = workload["metadata"].get("deletionTimestamp")
        if verdict_of(workload) is not None or (status.phase.final and not deleting):
            return status
        objects = await read_objects(namespaced, workload)
        again = run in self._cancelled and self._cancelled[run].workload["metadata"]["uid"] == uid
        await (kill_pods(namespaced, objects) if again else delete(namespaced, workload))
        self._cancelled[run] = _Cancelled(workload, status, objects, killed=again)
        return status

    async def _ended(self, cancelled: _Cancelled, timeout: float | None) -> RunStatus:
        """Waits until the pods of a cancelled run have terminated, and returns the run's final state.

        If pods still run after `timeout` seconds, returns the state that the run had when `cancel` was called.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while await has_pods(self.namespaced, cancelled.workload):
            if until is not None and time.monotonic() >= until:
                return cancelled.status
            await asyncio.sleep(_POLL)
        return _final(cancelled)

    async def gone(self, workload: Manifest) -> bool:
        """Returns whether a run and all its pods are deleted, so that a new run may use the run's name and files."""
        about = workload["metadata"]
        if await self.workload(str(about["name"]), str(about["uid"])) is not None:
            return False
        return not await has_pods(self.namespaced, workload)

    async def conclude(self, workload: Manifest, status: RunStatus, *, stop: bool) -> None:
        """Writes the verdict of a run that no process follows. If `stop`, also suspends the run."""
        try:
            await write_verdict(self.namespaced, workload, status)
        finally:
            if stop:
                await suspend(self.namespaced, workload)

    async def end(self, workload: Manifest, how: Stop = delete) -> None:
        """Stops a run with `how`, a function of the module `stop`. If the run no longer exists, does nothing."""
        await how(self.namespaced, workload)


def _render(request: RenderRequest, target: str, change_pod: ChangePod | None) -> Sequence[Manifest]:
    """Returns the objects of a run with changed pod templates. The last object is the workload."""
    from stepset.rendering import render

    objects = render(request, target)
    return objects if change_pod is None else [with_changed_pods(each, change_pod) for each in objects]


def _final(cancelled: _Cancelled) -> RunStatus:
    """Returns the final state of a cancelled run that no longer exists."""
    kind, before = FailureKind.CANCELLED, cancelled.status
    how = ": its pods were killed" if cancelled.killed else ""
    failure = Failure(kind=kind, message=f"run {before.name} was cancelled{how}.", advice=ADVICE[kind])
    return before.with_(phase=Phase.FAILED, reason="", failure=failure, finished=time.time())
