"""Reads the lines that a run's pods still hold, merged by time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import groupby

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.replies import NOT_FOUND, RefusedError, UnreachableError
from stepset.backends.kubernetes.logs.pod_log import NOT_YET, SNAPSHOT_READ_TIMEOUT, log_path, log_query, not_shown
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.rows import rows_of
from stepset.backends.kubernetes.logs.spool import in_groups
from stepset.errors import InfrastructureError
from stepset.watch.log_cursor import LogCursor

_TRIES = 5
_BLOCK = 1 << 16
_AT_ONCE = 100
"""Pods whose logs are read at the same time; each takes a connection."""


async def merged_rows(
    namespaced: NamespacedClient, pods: Sequence[LogPod], sources: frozenset[str] | None
) -> AsyncGenerator[list[bytes], None]:
    """Yields blocks of rows `[source] text`, merged by time, earlier attempts first.

    If some logs cannot be read, raises InfrastructureError after the rows of the others.
    """
    lost: list[InfrastructureError] = []
    for _, attempt in groupby(pods, key=lambda pod: pod.attempt):
        async with AsyncExitStack() as opened:
            logs = []
            for pod in attempt:
                stamped = await opened.enter_async_context(aclosing(_stamped(namespaced, pod, lost)))
                logs.append(await opened.enter_async_context(aclosing(rows_of(pod, stamped, sources))))
            async for _, rows in await opened.enter_async_context(aclosing(in_groups(logs, _AT_ONCE))):
                yield rows
    if lost:
        raise lost[0]


async def _stamped(
    namespaced: NamespacedClient, pod: LogPod, lost: list[InfrastructureError]
) -> AsyncGenerator[bytes, None]:
    """Yields one pod's log, with timestamps, up to now; adds the reason to `lost` if a part of it cannot be read."""
    cursor = LogCursor(stamped=True)
    for previous in (True, False) if pod.restarts else (False,):
        tries = 0
        while tries < _TRIES:
            error: InfrastructureError | None = None
            try:
                async with aclosing(_blocks(namespaced, pod, cursor, previous)) as blocks:
                    async for block in blocks:
                        if text := cursor.feed(block):
                            tries = 0
                            yield text
                # The kubelet may have deleted the previous container's log.
                if cursor.error and not previous:
                    error = InfrastructureError(f"pod {pod.name}: its log cannot be read: {cursor.error[:300]}")
            except UnreachableError as unreachable:
                error = unreachable
            except RefusedError as refused:
                if refused.reply.status not in (*NOT_YET, NOT_FOUND):
                    raise not_shown(refused.reply, namespaced) from refused
            if error is None:
                break
            cursor.cut()
            tries += 1
            if tries == _TRIES:
                lost.append(error)
            else:
                await asyncio.sleep(random.uniform(0.5, 1.0) * 0.2 * 2**tries)
        yield cursor.finish()


async def _blocks(
    namespaced: NamespacedClient, pod: LogPod, cursor: LogCursor, previous: bool
) -> AsyncGenerator[bytes, None]:
    """Yields a response in larger pieces: the server sends 2 KiB at a time."""
    query = log_query(pod, cursor.since, previous=previous)
    async with namespaced.client.stream(log_path(namespaced.namespace, pod), query, SNAPSHOT_READ_TIMEOUT) as chunks:
        block = bytearray()
        try:
            async for chunk in chunks:
                block += chunk
                if len(block) >= _BLOCK:
                    yield bytes(block)
                    block.clear()
        except UnreachableError:
            yield bytes(block)
            raise
        yield bytes(block)
