"""Reads the current logs of a run's pods, and merges their lines by time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.replies import NOT_FOUND, RefusedError, UnreachableError
from stepset.backends.kubernetes.logs.merge import Block, in_groups
from stepset.backends.kubernetes.logs.pod_log import NOT_YET, SNAPSHOT_READ_TIMEOUT, log_path, log_query, not_shown
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.rows import rows_of
from stepset.errors import InfrastructureError
from stepset.watch.log_cursor import LogCursor

_TRIES = 5
_BLOCK = 1 << 16
_AT_ONCE = 100
"""The number of pods whose logs are read at the same time. Each log needs a connection."""


@dataclass
class LogRange:
    """The part of the pods' logs to read.

    Args:
        since: a time in seconds since the epoch. Earlier lines are not requested. None means that all lines are
            requested.
        previous: whether to read only the logs of previous containers, as `kubectl logs --previous` does.
        positions: a mapping from a pod's uid to a position in the pod's log. After reading a log, the functions of this
            module store the position that follows the last line. If the log has no line after `since`, the position
            is the time `since`.
    """

    since: float | None = None
    previous: bool = False
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)


async def merged_rows(
    namespaced: NamespacedClient,
    pods: Sequence[LogPod],
    sources: frozenset[str] | None,
    wanted: LogRange | None = None,
) -> AsyncGenerator[Block, None]:
    """Yields blocks of rows with their times. A row has the form `[source] text`.

    The rows are ordered by attempt. The rows of one attempt are ordered by time. If some logs cannot be read, this
    function yields the rows of all other logs, then raises InfrastructureError.
    """
    lost: list[InfrastructureError] = []
    wanted = wanted or LogRange()
    for _, attempt in groupby(pods, key=lambda pod: pod.attempt):
        async with AsyncExitStack() as opened:
            logs = []
            for pod in attempt:
                stamped = await opened.enter_async_context(aclosing(_stamped(namespaced, pod, lost, wanted)))
                logs.append(await opened.enter_async_context(aclosing(rows_of(pod, stamped, sources))))
            async for block in await opened.enter_async_context(aclosing(in_groups(logs, _AT_ONCE))):
                yield block
    if lost:
        raise lost[0]


async def _stamped(
    namespaced: NamespacedClient, pod: LogPod, lost: list[InfrastructureError], wanted: LogRange
) -> AsyncGenerator[bytes, None]:
    """Yields the current log of one pod, with timestamps.

    If a part of the log cannot be read, this function adds the error to `lost`.
    """
    cursor = LogCursor(stamped=True)
    first = None if wanted.since is None else datetime.fromtimestamp(wanted.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    starts = (True,) if wanted.previous else (True, False) if pod.restarts else (False,)
    for previous in starts:
        tries = 0
        while tries < _TRIES:
            error: InfrastructureError | None = None
            try:
                async with aclosing(_blocks(namespaced, pod, cursor, previous, first)) as blocks:
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
    if cursor.since is None and wanted.since is not None:
        cursor = LogCursor.at(wanted.since)
    wanted.positions[pod.uid] = cursor.to_dict()


async def _blocks(
    namespaced: NamespacedClient, pod: LogPod, cursor: LogCursor, previous: bool, first: str | None
) -> AsyncGenerator[bytes, None]:
    """Yields a response in large pieces. The server sends pieces of 2 KiB, which this function joins."""
    query = log_query(pod, cursor.since or first, previous=previous)
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
