"""The asynchronous Python API: starts, waits for and reads runs in an event loop.

    from stepset import aio
    status = await aio.run(job, "kubernetes")

A run on a cluster does not block the event loop. A local run starts processes on this machine, and threads of this
process supervise the started processes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, LogSelection, RunListener, RunRequest
from stepset.backends.local import LocalBackend
from stepset.backends.user_listener import user_listener
from stepset.errors import StepsetError, explain_interrupt
from stepset.html.calls import continues_sentence, may_run_sentence
from stepset.job_source.call_signature import lists_job_fields
from stepset.job_source.request import JobSource, RunArguments, run_request
from stepset.log_sources import check_sources
from stepset.notebook.outcome import succeeded
from stepset.run_status import LogLine, RunStatus
from stepset.runs import Ranks, Run, located, log_selection, resumed
from stepset.watch.lines import line_of
from stepset.watch.present.sentences import end_sentence

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.resources import Manifest
    from stepset.backends.kubernetes.cluster_runs import ClusterRuns
    from stepset.backends.local.launch import LocalHandle

__all__ = ["logs", "run", "status", "wait"]

_T = TypeVar("_T")

_POLL = 0.1
"""The number of seconds between two reads of a local run's state, and between two wake-ups of the event loop."""
_END_TIMEOUT = 30.0
"""The timeout, in seconds, of the request that stops the run when the caller is cancelled."""

_NO_NAME = "the run of job {} was cancelled"
"""The message of a cancellation before the name of the run is known."""

_expiring: set[asyncio.Task[None]] = set()
"""The tasks that delete expired runs. The set keeps the tasks alive, because an event loop has only weak references to
its tasks."""


@lists_job_fields
async def run(
    job: JobSource | Run | RunStatus | None = None,
    backend: str = "local",
    *,
    run_name: str | None = None,
    base_dir: str | Path | None = None,
    listener: RunListener | None = None,
    cluster: ClusterOptions | None = None,
    resume: bool = False,
    fresh: bool = False,
    **fields: Any,
) -> RunStatus:
    """Runs a job and waits until the run has finished. If the caller is cancelled, the run is stopped.

    The function returns the same status as `stepset.run`, and raises the same errors.

    Args:
        job, backend, run_name, base_dir, cluster, resume, fresh, fields: the same arguments as those of `stepset.run`.
        listener: an object that receives each log line and each change of the run's state. stepset calls its methods in
            a thread. Default: none.
    """
    if isinstance(job, (Run, RunStatus)):
        job, backend, cluster = resumed(job, backend, cluster, resume)
    listener = user_listener(listener)
    given = RunArguments(job, backend, run_name, base_dir, cluster, resume, fresh, fields)
    request = await asyncio.to_thread(run_request, given)
    if backend == "kubernetes":
        return succeeded(await _run_on_cluster(request, listener, cluster))
    return succeeded(await _run_in_threads(request, _local(backend, cluster), listener))


async def status(
    name: str | Run | RunStatus, backend: str = "local", *, cluster: ClusterOptions | None = None
) -> RunStatus:
    """Returns the current status of a run.

    Args:
        name, backend, cluster: the same arguments as those of `stepset.status`.

    Raises:
        RunNotFoundError: no run has this name.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    name, backend, cluster = located(name, backend, cluster)
    if backend != "kubernetes":
        return await asyncio.to_thread(_local(backend, cluster).status, name)
    async with _cluster_runs(cluster, read_only=True) as runs:
        return await runs.status(name)


async def wait(
    name: str | Run | RunStatus,
    backend: str = "local",
    *,
    timeout: float | None = None,
    cluster: ClusterOptions | None = None,
) -> RunStatus:
    """Waits until a run has finished.

    Args:
        name, backend, cluster: the same arguments as those of `stepset.status`.
        timeout: the maximum number of seconds to wait. Default: no limit.

    Returns:
        The final status, or the current status if the run has not finished after `timeout` seconds.

    Raises:
        RunNotFoundError: no run has this name.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    name, backend, cluster = located(name, backend, cluster)
    try:
        if backend != "kubernetes":
            return await _wait_for_local(_local(backend, cluster), name, timeout)
        async with _cluster_runs(cluster, read_only=True) as runs:
            return await runs.wait(name, timeout)
    except asyncio.CancelledError as error:
        explain_interrupt(error, continues_sentence(name, backend))
        raise


async def logs(
    name: str | Run | RunStatus,
    backend: str = "local",
    *,
    follow: bool = False,
    ranks: Ranks | None = None,
    tail: int | None = None,
    since: float | None = None,
    previous: bool = False,
    cluster: ClusterOptions | None = None,
) -> AsyncGenerator[LogLine, None]:
    """Yields the log lines of a run.

    A caller that stops before the last line must close the generator, for example with `contextlib.aclosing`.

    Args:
        name, backend, cluster: the same arguments as those of `stepset.status`.
        follow, ranks, tail, since, previous: the same arguments as those of `stepset.logs`.

    Raises:
        BadInputError: an argument is not valid, or there is no previous attempt.
        RunNotFoundError: no run has this name.
        InfrastructureError: some lines cannot be read. The generator yields the other lines first.
    """
    name, backend, cluster = located(name, backend, cluster)
    chosen = log_selection(follow=follow, ranks=ranks, tail=tail, since=since, previous=previous)
    if chosen.sources is not None:
        check_sources(chosen.sources, await status(name, backend, cluster=cluster), "ranks")
    if backend != "kubernetes":
        blocks = _local_blocks(_local(backend, cluster), name, chosen)
        while (lines := await asyncio.to_thread(next, blocks, None)) is not None:
            for line in lines:
                yield line
        return
    async with _cluster_runs(cluster, read_only=True) as runs:
        if chosen.without_times:
            async with aclosing(runs.lines(name, follow=follow, sources=chosen.sources)) as found:
                async for line in found:
                    yield line
            return
        async with aclosing(runs.timed_rows(name, chosen)) as timed:
            async for block in timed:
                for _, row in block:
                    yield line_of(row)


def _local_blocks(backend: LocalBackend, name: str, chosen: LogSelection) -> Iterator[Sequence[LogLine]]:
    if chosen.without_times:
        return backend.blocks(name, follow=chosen.follow, sources=chosen.sources)
    return ([line_of(row) for _, row in block] for block in backend.timed_rows(name, chosen))


def _local(backend: str, cluster: ClusterOptions | None) -> LocalBackend:
    found = backend_of(backend, cluster)
    assert isinstance(found, LocalBackend)
    return found


async def _wait_for_local(backend: LocalBackend, name: str, timeout: float | None) -> RunStatus:
    """Reads the state repeatedly, because a thread that waits for the run could not be cancelled."""
    clock = asyncio.get_running_loop().time
    until = None if timeout is None else clock() + timeout
    while True:
        status = await asyncio.to_thread(backend.state, name)
        left = _POLL if until is None else until - clock()
        if status.phase.final or left <= 0:
            return await asyncio.to_thread(backend.status, status.name)
        name = status.name
        await asyncio.sleep(min(_POLL, left))


async def _run_in_threads(request: RunRequest, backend: LocalBackend, listener: RunListener | None) -> RunStatus:
    stopping = threading.Event()
    request = replace(request, stopping=stopping.is_set)
    starting = asyncio.create_task(asyncio.to_thread(backend.start, request, listener))
    running = asyncio.create_task(_wait_in_thread(starting))
    try:
        return await _finished(running)
    except asyncio.CancelledError as error:
        explain_interrupt(error, _NO_NAME.format(request.job.name))
        stopping.set()
        with anyio.CancelScope(shield=True), suppress(StepsetError):
            await asyncio.wait({starting})
            if starting.exception() is None:  # the run has started
                starting.result().cancel()
            explain_interrupt(error, end_sentence(await running))
        raise


async def _wait_in_thread(starting: asyncio.Task[LocalHandle]) -> RunStatus:
    return await asyncio.to_thread((await starting).wait)


async def _finished(task: asyncio.Task[_T]) -> _T:
    """Returns the result of a task. If the caller is cancelled, the task continues.

    The event loop wakes up at regular intervals. Python calls the handler of SIGINT only in the main thread, and the
    kernel of the operating system may deliver the signal to another thread. In this case, an event loop that sleeps in
    the main thread would not wake up. Ctrl-C, or the interruption of a notebook cell, would have no effect.
    """
    while not task.done():
        await asyncio.wait({task}, timeout=_POLL)
    return task.result()


async def _run_on_cluster(
    request: RunRequest, listener: RunListener | None, cluster: ClusterOptions | None
) -> RunStatus:
    async with _cluster_runs(cluster) as runs:
        making = asyncio.create_task(runs.make(request))
        try:
            made, notes = await _finished(making)
            final = await runs.follower(made.workload, listener, notes).follow()
        except asyncio.CancelledError as error:
            explain_interrupt(error, _NO_NAME.format(request.job.name))
            with anyio.move_on_after(_END_TIMEOUT, shield=True), suppress(StepsetError):  # the run may not exist
                made, _ = await making
                name = made.workload["metadata"]["name"]
                explain_interrupt(error, may_run_sentence(name, "kubernetes"))
                await runs.end(made.workload)
                explain_interrupt(error, f"run {name} was cancelled")
            raise
    expiring = asyncio.create_task(_delete_when_expired(made.workload, final, cluster))
    _expiring.add(expiring)
    expiring.add_done_callback(_expiring.discard)
    return final


async def _delete_when_expired(workload: Manifest, final: RunStatus, cluster: ClusterOptions | None) -> None:
    """Deletes the run when its ttl expires. Has no effect if the event loop stops earlier."""
    if final.expires is None:
        return
    from stepset.backends.kubernetes.expiry import delete_when_expired

    async with _cluster_runs(cluster) as runs:
        await delete_when_expired(runs.namespaced, workload, final)


def __dir__() -> list[str]:
    return __all__


@asynccontextmanager
async def _cluster_runs(options: ClusterOptions | None, *, read_only: bool = False) -> AsyncIterator[ClusterRuns]:
    """Yields the runs of a cluster. `read_only` is the argument of `backend_of`."""
    from stepset.backends.kubernetes.api.client import client_of
    from stepset.backends.kubernetes.api.namespaced import NamespacedClient
    from stepset.backends.kubernetes.api.permissions import Grant
    from stepset.backends.kubernetes.cluster_runs import ClusterRuns
    from stepset.watch.cluster.follow_policy import Timeouts

    options = options or ClusterOptions()
    async with client_of(options.kubeconfig, options.context) as client:
        config = await client.open()
        yield ClusterRuns(
            NamespacedClient(client, options.namespace or config.namespace, Grant(read_only=read_only)),
            target=options.target,
            sources=options.sources,
            timeouts=Timeouts(options.admission_timeout, options.startup_timeout),
        )
