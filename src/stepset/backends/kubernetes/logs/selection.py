"""Reads the log lines that a LogSelection selects, with the times of the lines."""

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

_SECOND = len("2006-01-02T15:04:05")


async def existing_rows(
    namespaced: NamespacedClient, run: str, pods: Sequence[LogPod], selection: LogSelection, wanted: LogRange
) -> AsyncGenerator[Sequence[TimedRow], None]:
    """Yields the selected lines in the current logs of the pods.

    For each log, this function stores in `wanted.positions` the position that follows the last line.

    Raises:
        BadInputError: the previous attempt is selected, but the cluster has no log of the previous attempt.
        InfrastructureError: some lines cannot be read. The function yields all other lines before it raises this error.
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
    """Yields the lines of `outputs`. The time of each line is the time at which this process received it.

    The readers deliver each log from its beginning. If `output.position` is None, the output precedes the position that
    `existing_rows` has stored. Its lines are not yielded, because `existing_rows` has yielded or dropped them.
    """
    async for output in outputs:
        now = time.time()
        complete = list(output.complete_lines())
        if output.position is None:
            continue
        yield [
            (now, b"[%s] %s" % (source.encode(), text))
            for source, text in complete
            if sources is None or source in sources
        ]


def _previous(run: str, pods: Sequence[LogPod], wanted: LogRange) -> Sequence[LogPod]:
    """Returns the pods of the previous attempt.

    If no pod of the previous attempt exists, returns the pods whose container was restarted.
    """
    current = max((pod.attempt for pod in pods), default=0)
    if earlier := [pod for pod in pods if pod.attempt == current - 1]:
        return earlier
    wanted.previous = True
    if again := [pod for pod in pods if pod.restarts]:
        return again
    raise BadInputError(
        f"run {run}: the cluster has no log of a previous attempt: there was none, or its pods were deleted"
    )


def _seconds(stamp: bytes) -> float:
    """Converts a time in the format of `merged_rows` to seconds since the epoch. Returns 0 for an invalid time."""
    text = stamp.decode("ascii", "replace")
    try:
        return datetime.fromisoformat(f"{text[:_SECOND]}+00:00").timestamp() + float(f"0{text[_SECOND:]}")
    except ValueError:
        return 0.0
