"""The lines of a run that its pods still hold, merged by time; or the lines as they come, until the run is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.replies import NOT_FOUND, RefusedError, UnreachableError
from stepset.backends.kubernetes.api.resources import PODS
from stepset.backends.kubernetes.logs.pod_log import LAST_QUIET, NOT_YET, log_path, log_query, not_shown
from stepset.backends.kubernetes.logs.pods import LogPod, log_pod, may_hold
from stepset.backends.kubernetes.logs.rows import rows_of
from stepset.backends.kubernetes.logs.spool import in_groups
from stepset.errors import InfrastructureError
from stepset.targets.identity import RUN
from stepset.watch.cluster.workload import read_workload
from stepset.watch.resume import Resume

_TRIES = 5
_BLOCK = 1 << 16
_AT_ONCE = 100
"""Pods whose logs are read at the same time; each takes a connection."""

Manifest = Mapping[str, Any]
OpenLog = Callable[[Callable[[], AsyncGenerator[bytes, None]]], Iterator[bytes]]
"""Makes an iterator of an asynchronous generator that runs in the event loop."""


async def pods_with_logs(site: NamespacedClient, workload: Manifest, sources: frozenset[str] | None) -> list[LogPod]:
    """Returns the pods of a run that have a log which may hold wanted lines, in the order of their attempts.

    Args:
        site: the run's namespace.
        workload: its workload, as it was read.
        sources: whose lines are wanted, such as `rank 0`; None: all.

    Raises:
        InfrastructureError: the server does not show the pods.
    """
    run, known = str(workload["metadata"]["name"]), read_workload(workload)
    reply = await site.client.get(site.all(PODS), {"labelSelector": f"{RUN}={run}"})
    if not reply.accepted:
        raise not_shown(reply, site.namespace)
    ranks = known.ranks if known else {}
    pods = [pod for pod in map(log_pod, reply.body["items"]) if pod.begun and may_hold(pod, sources, ranks)]
    return sorted(pods, key=lambda pod: (pod.attempt, pod.group, pod.index))


def merged_rows(
    site: NamespacedClient, pods: Sequence[LogPod], sources: frozenset[str] | None, open_log: OpenLog
) -> Generator[list[bytes], None, None]:
    """Yields blocks of rows `[source] text`, merged by time; those of earlier attempts first. Blocks the thread.

    Args:
        site: the pods' namespace.
        pods: as `pods_with_logs` returns them.
        sources: only their rows; None: all.
        open_log: see OpenLog.

    Raises:
        InfrastructureError: some logs cannot be read; the rows that can be come first.
    """
    lost: list[InfrastructureError] = []

    def chunks(pod: LogPod) -> Iterator[bytes]:
        return open_log(lambda: _stamped(site, pod, lost))

    for _, attempt in groupby(pods, key=lambda pod: pod.attempt):
        logs = [rows_of(pod, chunks(pod), sources) for pod in attempt]
        for _, rows in in_groups(logs, _AT_ONCE):
            yield rows
    if lost:
        raise lost[0]


async def _stamped(site: NamespacedClient, pod: LogPod, lost: list[InfrastructureError]) -> AsyncGenerator[bytes, None]:
    """One pod's log, with timestamps, up to now; the reason why it is not whole is added to `lost`."""
    resume = Resume(stamped=True)
    for previous in (True, False) if pod.restarts else (False,):
        tries = 0
        while tries < _TRIES:
            error: InfrastructureError | None = None
            try:
                async with aclosing(_blocks(site, pod, resume, previous)) as blocks:
                    async for block in blocks:
                        if text := resume.feed(block):
                            tries = 0
                            yield text
                # Of the earlier starts, the kubelet keeps one, until the next has ended.
                if resume.complaint and not previous:
                    error = InfrastructureError(f"pod {pod.name}: its log cannot be read: {resume.complaint[:300]}")
            except UnreachableError as unreachable:
                error = unreachable
            except RefusedError as refused:
                if refused.reply.status not in (*NOT_YET, NOT_FOUND):
                    raise not_shown(refused.reply, site.namespace) from refused
            if error is None:
                break
            resume.cut()
            tries += 1
            if tries == _TRIES:
                lost.append(error)
            else:
                await asyncio.sleep(random.uniform(0.5, 1.0) * 0.2 * 2**tries)
        yield resume.finish()


async def _blocks(site: NamespacedClient, pod: LogPod, resume: Resume, previous: bool) -> AsyncGenerator[bytes, None]:
    """A response in larger pieces: the server sends 2 KiB at a time."""
    query = log_query(pod, resume.since, previous=previous)
    async with site.client.stream(log_path(site.namespace, pod), query, LAST_QUIET) as chunks:
        some, size, broken = list[bytes](), 0, None
        try:
            async for chunk in chunks:
                some.append(chunk)
                size += len(chunk)
                if size >= _BLOCK:
                    yield b"".join(some)
                    some, size = [], 0
        except UnreachableError as error:
            broken = error
        if some:
            yield b"".join(some)
        if broken is not None:
            raise broken
