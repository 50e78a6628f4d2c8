"""The asynchronous Python API: runs jobs, and reads runs, in an event loop.

    from stepset import aio
    status = await aio.run(job, "kubernetes")

Runs on a cluster do not block the event loop. Local runs are processes of this machine, which threads supervise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from stepset.api import JobSource, request_of, training_failed
from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, RunListener, RunRequest
from stepset.backends.local import LocalBackend
from stepset.errors import StepsetError
from stepset.run_status import LogLine, Phase, RunStatus

if TYPE_CHECKING:
    from stepset.backends.kubernetes.api.resources import Manifest
    from stepset.backends.kubernetes.runs import ClusterRuns

__all__ = ["logs", "run", "status", "wait"]

_POLL = 0.1
"""Seconds between two reads of a local run's state."""
_END_TIMEOUT = 30.0
"""Timeout in seconds of the request that ends the run when the caller is cancelled."""

_expiring: set[asyncio.Task[None]] = set()
"""References to the tasks that delete expired runs, because the event loop keeps only weak references to tasks."""


async def run(
    job: JobSource,
    backend: str = "local",
    *,
    name: str | None = None,
    base_dir: Path | None = None,
    listener: RunListener | None = None,
    cluster: ClusterOptions | None = None,
) -> RunStatus:
    """Runs a job and waits until the run is over. Cancelling the caller ends the run.

    Args:
        job: a TrainingJob, a mapping with the keys of a job file, or the path of a job file.
        backend: `local`, processes on this machine, or `kubernetes`; default: `local`.
        name: the run's name; default: the job's name with a suffix.
        base_dir: the directory that the job's paths are relative to; default: the job file's directory; for a job that
            is not a file, the current directory.
        listener: an object whose methods stepset calls, in a thread, with each log line and each change of the run's
            state; default: none.
        cluster: the cluster, the namespace, and the timeouts in seconds, for the backend `kubernetes`; default: the
            current context of the kubeconfig.

    Returns:
        The final status; `status.result` is the JSON value that rank 0 wrote to STEPSET_RESULT_FILE, else None.

    Raises:
        BadInputError: the job is not valid, a file is missing, or the cluster rejects the job.
        TrainingFailedError: the run ended without success; `error.status` is its final status.
        InfrastructureError: the cluster cannot be reached, or denies access.
    """
    request = await asyncio.to_thread(request_of, job, name, base_dir)
    if backend == "kubernetes":
        status = await _run_on_cluster(request, listener, cluster)
    else:
        status = await _run_in_threads(request, _local(backend), listener)
    if status.phase is not Phase.SUCCEEDED:
        raise training_failed(status)
    return status


async def status(name: str, backend: str = "local", *, cluster: ClusterOptions | None = None) -> RunStatus:
    """Returns the current status of a run.

    Args:
        name: the name of a run, or the name of a job for its newest run.
        backend: `local` or `kubernetes`; default: `local`.
        cluster: the cluster and the namespace, for the backend `kubernetes`; default: the current context of the
            kubeconfig.

    Raises:
        RunNotFoundError: no run has this name.
        InfrastructureError: the cluster cannot be reached, or denies access.
    """
    if backend != "kubernetes":
        return await asyncio.to_thread(_local(backend).status, name)
    async with _cluster_runs(cluster) as runs:
        return await runs.status(name)


async def wait(
    name: str, backend: str = "local", *, timeout: float | None = None, cluster: ClusterOptions | None = None
) -> RunStatus:
    """Waits until a run is over.

    Args:
        name: the name of a run, or the name of a job for its newest run.
        backend: `local` or `kubernetes`; default: `local`.
        timeout: the longest time to wait, in seconds; default: no limit.
        cluster: the cluster and the namespace, for the backend `kubernetes`; default: the current context of the
            kubeconfig.

    Returns:
        The final status, or the current status after `timeout` seconds.

    Raises:
        RunNotFoundError: no run has this name.
        InfrastructureError: the cluster cannot be reached, or denies access.
    """
    if backend != "kubernetes":
        return await _wait_for_local(_local(backend), name, timeout)
    async with _cluster_runs(cluster) as runs:
        return await runs.wait(name, timeout)


async def logs(
    name: str,
    backend: str = "local",
    *,
    follow: bool = False,
    sources: frozenset[str] | None = None,
    cluster: ClusterOptions | None = None,
) -> AsyncGenerator[LogLine, None]:
    """Yields the lines of a run. A caller that stops early must close the generator (contextlib.aclosing).

    Args:
        name: the name of a run, or the name of a job for its newest run.
        backend: `local` or `kubernetes`; default: `local`.
        follow: whether to yield lines as they are printed, until the run is over; default: the existing lines, in the
            order of their times.
        sources: the sources whose lines to yield, such as `rank 0`; default: all.
        cluster: the cluster and the namespace, for the backend `kubernetes`; default: the current context of the
            kubeconfig.

    Raises:
        RunNotFoundError: no run has this name.
        InfrastructureError: some lines cannot be read; the generator yields the other lines first.
    """
    if backend != "kubernetes":
        blocks = _local(backend).blocks(name, follow=follow, sources=sources)
        while (lines := await asyncio.to_thread(next, blocks, None)) is not None:
            for line in lines:
                yield line
        return
    async with _cluster_runs(cluster) as runs, aclosing(runs.lines(name, follow=follow, sources=sources)) as found:
        async for line in found:
            yield line


def _local(backend: str) -> LocalBackend:
    found = backend_of(backend)
    assert isinstance(found, LocalBackend)
    return found


async def _wait_for_local(backend: LocalBackend, name: str, timeout: float | None) -> RunStatus:
    """Polls the state, because a thread that waits for the run could not be cancelled."""
    clock = asyncio.get_running_loop().time
    until = None if timeout is None else clock() + timeout
    while True:
        status = await asyncio.to_thread(backend.status, name)
        left = _POLL if until is None else until - clock()
        if status.phase.final or left <= 0:
            return status
        name = status.name
        await asyncio.sleep(min(_POLL, left))


async def _run_in_threads(request: RunRequest, backend: LocalBackend, listener: RunListener | None) -> RunStatus:
    starting = asyncio.create_task(asyncio.to_thread(backend.start, request, listener))
    try:
        return await asyncio.to_thread((await asyncio.shield(starting)).wait)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True), suppress(StepsetError):  # the run may not have started
            handle = await starting
            handle.cancel()
            await asyncio.to_thread(handle.wait)
        raise


async def _run_on_cluster(
    request: RunRequest, listener: RunListener | None, cluster: ClusterOptions | None
) -> RunStatus:
    async with _cluster_runs(cluster) as runs:
        making = asyncio.create_task(runs.make(request))
        try:
            made, notes = await asyncio.shield(making)
            async with runs.following(made.workload, listener, notes) as follower:
                final = await follower.follow()
        except asyncio.CancelledError:
            with anyio.move_on_after(_END_TIMEOUT, shield=True), suppress(StepsetError):  # the run may not exist
                made, _ = await making
                await runs.end(made.workload)
            raise
    expiring = asyncio.create_task(_delete_when_expired(made.workload, final, cluster))
    _expiring.add(expiring)
    expiring.add_done_callback(_expiring.discard)
    return final


async def _delete_when_expired(workload: Manifest, final: RunStatus, cluster: ClusterOptions | None) -> None:
    """Deletes a run whose ttl is over, if the event loop still runs then."""
    if final.expires is None:
        return
    from stepset.backends.kubernetes.expiry import delete_when_expired

    async with _cluster_runs(cluster) as runs:
        await delete_when_expired(runs.namespaced, workload, final)


@asynccontextmanager
async def _cluster_runs(options: ClusterOptions | None) -> AsyncIterator[ClusterRuns]:
    from stepset.backends.kubernetes.api.client import client_of
    from stepset.backends.kubernetes.api.namespaced import NamespacedClient
    from stepset.backends.kubernetes.runs import ClusterRuns
    from stepset.watch.cluster.follow_policy import Timeouts

    options = options or ClusterOptions()
    async with client_of(options.kubeconfig, options.context) as client:
        config = await client.open()
        yield ClusterRuns(
            NamespacedClient(client, options.namespace or config.namespace),
            target=options.target,
            sources=options.sources,
            timeouts=Timeouts(options.admission_timeout, options.startup_timeout),
        )
