"""The asynchronous Python API: run a job, and ask for a run, from an event loop.

    from stepset import aio
    status = await aio.run(job, "kubernetes")

On a cluster nothing blocks the event loop. Local runs are processes of this machine, which threads supervise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from stepset.api import JobSource, TrainingFailedError, request_of
from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, RunListener, RunRequest
from stepset.errors import StepsetError
from stepset.watch.state import LogLine, Phase, RunStatus

if TYPE_CHECKING:
    from stepset.backends.kubernetes.runs import ClusterRuns

_ENDS_WITHIN = 30.0
"""Seconds in which the server must take the request that ends a run whose caller was cancelled."""


async def run(
    job: JobSource,
    backend: str = "local",
    *,
    name: str | None = None,
    base_dir: Path | None = None,
    listener: RunListener | None = None,
    cluster: ClusterOptions | None = None,
) -> RunStatus:
    """Runs a job to its end. Cancelling the caller ends the run.

    Args:
        job: a TrainingJob, a mapping, or the path of a job file.
        backend: where it runs: `local`, as processes on this machine, or `kubernetes`.
        name: the run's name; default: derived from the job's.
        base_dir: what the job's paths are relative to; default: the job file's directory, else the current one.
        listener: is called with every line and every state, in a thread.
        cluster: which cluster, for `kubernetes`; default: that of the kubeconfig's current context.

    Returns:
        The final status; `status.result` is what rank 0 wrote to STEPSET_RESULT_FILE.

    Raises:
        BadInputError: the job cannot be run as asked.
        TrainingFailedError: it ran and failed.
        InfrastructureError: the cluster cannot be asked.
    """
    request = await asyncio.to_thread(request_of, job, name, base_dir)
    status = await (_run_there if backend == "kubernetes" else _run_here)(request, backend, listener, cluster)
    if status.phase is not Phase.SUCCEEDED:
        raise TrainingFailedError(status)
    return status


async def status(name: str, backend: str = "local", *, cluster: ClusterOptions | None = None) -> RunStatus:
    """Returns the state of a run.

    Args:
        name: a run's name, or a job's: its newest run.
        backend: where it runs: `local` or `kubernetes`.
        cluster: which cluster, for `kubernetes`.

    Raises:
        RunNotFoundError: there is none.
        InfrastructureError: the cluster cannot be asked.
    """
    if backend != "kubernetes":
        return await asyncio.to_thread(backend_of(backend).status, name)
    async with _cluster_runs(cluster) as runs:
        return await runs.status(name)


async def wait(
    name: str, backend: str = "local", *, timeout: float | None = None, cluster: ClusterOptions | None = None
) -> RunStatus:
    """Returns when a run is over.

    Args:
        name: as for `status`.
        backend: as for `status`.
        timeout: seconds; default: no limit.
        cluster: as for `status`.

    Returns:
        The final status, or the present one when the time is up.

    Raises:
        RunNotFoundError, InfrastructureError: as `status` raises them.
    """
    if backend != "kubernetes":
        return await asyncio.to_thread(backend_of(backend).wait, name, timeout)
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
    """Yields the lines of a run. A caller that leaves before the end closes the generator (contextlib.aclosing).

    Args:
        name: as for `status`.
        backend: as for `status`.
        follow: go on until the run is over; then lines come as they are printed, else in the order of their times.
        sources: only theirs, such as `rank 0`; default: all.
        cluster: as for `status`.

    Raises:
        RunNotFoundError: there is no such run.
        InfrastructureError: some lines cannot be read; those that can be come first.
    """
    if backend != "kubernetes":
        lines = backend_of(backend).logs(name, follow=follow, sources=sources)
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield line
        return
    async with (
        _cluster_runs(cluster) as runs,
        aclosing(runs.lines(name, follow=follow, sources=sources)) as found,
    ):
        async for line in found:
            yield line


async def _run_here(
    request: RunRequest, backend: str, listener: RunListener | None, _: ClusterOptions | None
) -> RunStatus:
    starting = asyncio.create_task(asyncio.to_thread(backend_of(backend).start, request, listener))
    try:
        return await asyncio.to_thread((await asyncio.shield(starting)).wait)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True), suppress(StepsetError):  # it may not have started at all
            handle = await starting
            handle.cancel()
            await asyncio.to_thread(handle.wait)
        raise


async def _run_there(
    request: RunRequest, __: str, listener: RunListener | None, cluster: ClusterOptions | None
) -> RunStatus:
    async with _cluster_runs(cluster) as runs:
        making = asyncio.create_task(runs.make(request))
        try:
            made, notes = await asyncio.shield(making)
            async with runs.following(made.workload, listener, notes) as follower:
                return await follower.follow()
        except asyncio.CancelledError:
            with anyio.move_on_after(_ENDS_WITHIN, shield=True), suppress(StepsetError):  # it may not be made at all
                made, _ = await making
                await runs.end(made.workload)
            raise


@asynccontextmanager
async def _cluster_runs(options: ClusterOptions | None) -> AsyncIterator[ClusterRuns]:
    from stepset.backends.kubernetes.api.client import client_of
    from stepset.backends.kubernetes.api.namespaced import NamespacedClient
    from stepset.backends.kubernetes.runs import ClusterRuns
    from stepset.watch.cluster.keeper import Patience

    asked = options or ClusterOptions()
    async with client_of(asked.kubeconfig, asked.context) as client:
        config = await client.open()
        yield ClusterRuns(
            NamespacedClient(client, asked.namespace or config.namespace),
            target=asked.target,
            sources=asked.sources,
            patience=Patience(asked.admission_timeout, asked.startup_timeout),
        )
