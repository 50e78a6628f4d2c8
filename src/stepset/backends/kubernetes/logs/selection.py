"""Reads the lines of a run that a LogSelection names, with their times."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime

from stepset.backends.base import LogSelection, TimedRow
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.reading import LogRange, merged_rows
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.errors import BadInputError, InfrastructureError
from stepset.watch.lines import Joiner

_SECOND = len("2006-01-02T15:04:05")


async def existing_rows(
    namespaced: NamespacedClient, run: str, pods: Sequence[LogPod], selection: LogSelection, wanted: LogRange
) -> AsyncGenerator[Sequence[TimedRow], None]:
    """Yields the lines that the pods still hold; `wanted` receives the positions after them.

    Raises:
        BadInputError: the previous attempt is wanted, and the cluster has no log of it.
        InfrastructureError: some lines cannot be read; the others were yielded before.
    """
    if selection.previous:
        pods = _previous(run, pods, wanted)
    last: deque[TimedRow] | None = None if selection.tail is None else deque(maxlen=selection.tail)
    lost: InfrastructureError | None = None
    async with aclosing(merged_rows(namespaced, pods, selection.sources, wanted)) as blocks:
        try:
            async for times, rows in blocks:
                timed = [(_seconds(at), row) for at, row in zip(times, rows, strict=True)]
                block = [each for each in timed if selection.since is None or each[0] >= selection.since]
                if last is not None:
                    last.extend(block)
                elif block:
                    yield block
        except InfrastructureError as error:
            lost = error
    if last:
        yield list(last)
    if lost is not None:
        raise lost


async def new_rows(
    outputs: AsyncIterator[PodOutput], sources: frozenset[str] | None
) -> AsyncGenerator[Sequence[TimedRow], None]:
    """Yields the lines of outputs; their times are those at which they were received."""
    joiners: dict[str, Joiner] = {}
    async for output in outputs:
        now = time.time()
        complete = joiners.setdefault(output.pod, Joiner()).join(output.batch.lines)
        yield [
            (now, b"[%s] %s" % (source.encode(), text))
            for source, text in complete
            if sources is None or source in sources
        ]


def _previous(run: str, pods: Sequence[LogPod], wanted: LogRange) -> Sequence[LogPod]:
    """Returns the pods of the previous attempt, else those whose container was started again."""
    current = max((pod.attempt for pod in pods), default=0)
    if earlier := [pod for pod in pods if pod.attempt == current - 1]:
        return earlier
    wanted.previous = True
    if again := [pod for pod in pods if pod.restarts]:
        return again
    raise BadInputError(
        f"--previous: the cluster has no log of a previous attempt of run {run}: there was none, or its pods were"
        " deleted"
    )


def _seconds(stamp: bytes) -> float:
    """Returns a time of `merged_rows`, which is in UTC, in seconds since the epoch; 0 for an invalid one."""
    text = stamp.decode("ascii", "replace")
    try:
        return datetime.fromisoformat(f"{text[:_SECOND]}+00:00").timestamp() + float(f"0{text[_SECOND:]}")
    except ValueError:
        return 0.0
