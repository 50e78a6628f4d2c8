"""Reads what the agents of a run report in the last lines of the pods' logs, without following the run."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from io import BytesIO
from itertools import groupby

import anyio

from stepset.backends.kubernetes.api.client import gather
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import PODS
from stepset.errors import StepsetError
from stepset.plan.model import LAUNCHER
from stepset.targets.names import CONTAINER
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.lines import Batch, Splitter
from stepset.watch.log_cursor import LogCursor
from stepset.watch.plain_lines import PlainSplitter
from stepset.watch.state.reports import Reports

TAIL_LINES = 1000
"""The number of lines of each log that are read."""
_TAIL_BYTES = 1024 * 1024
"""The number of bytes that are parsed. If the lines have more than twice as many bytes, only the last are parsed."""
_MOST_PODS = 128
"""The maximum number of pods whose logs are read."""
_TIMEOUT = 5.0
"""The number of seconds to wait for logs. The kubelet of a lost node does not answer."""
_SECOND = len("2026-01-01T00:00:00")


async def read_reports(namespaced: NamespacedClient, objects: RunObjects) -> Reports:
    """Returns the reports in the last log lines of the pod that prints the output of rank 0.

    This is the launcher's pod if the run has a launcher. If the agent of this pod reports that its ranks make no
    progress, this function also reads the last lines of the other pods, because a hang concerns all ranks.

    The result contains no last lines of ranks, because an event about a redacted line may be missing in this part of
    the log. Logs are left out if they cannot be read in time, or if the account has no permission to read logs.
    """
    pods = [pod for pod in objects.pods if pod.started is not None and not pod.deleted]
    first = _reporting_pod(objects, pods)
    if first is None:
        return Reports(keep_lines=False)
    ours = objects.workload is not None and bool(objects.workload.job)
    found = [(first, await _tail(namespaced, first, ours=ours))]
    reports = _reports_in(found)
    if reports.stalled:
        others = [pod for pod in pods if pod.uid != first.uid][: _MOST_PODS - 1]
        tails = await gather(*(_tail(namespaced, pod, ours=ours) for pod in others))
        reports = _reports_in([*found, *zip(others, tails, strict=True)])
    return reports


def _reporting_pod(objects: RunObjects, pods: list[Pod]) -> Pod | None:
    """Returns the pod that prints the output of rank 0. Returns None if `pods` does not contain this pod."""
    workload = objects.workload
    launchers = [pod for pod in pods if pod.group == LAUNCHER]
    first = [pod for pod in pods if workload is not None and pod.group == workload.success and pod.index == 0]
    return next(iter([*launchers, *first]), None)


async def _tail(namespaced: NamespacedClient, pod: Pod, *, ours: bool) -> bytes:
    """Returns the last lines of a pod's log with their timestamps. Returns no lines if the log cannot be read.

    If `ours` is true, stepset has rendered the pod, and the container's name is known.
    """
    query = {"tailLines": str(TAIL_LINES), "timestamps": "true", **({"container": CONTAINER} if ours else {})}
    path, data = f"{PODS.path(namespaced.namespace)}/{pod.name}/log", bytearray()
    with anyio.move_on_after(_TIMEOUT):
        try:
            async with namespaced.client.stream(path, query, _TIMEOUT) as chunks:
                async for chunk in chunks:
                    data += chunk
                    if len(data) > 2 * _TAIL_BYTES:
                        del data[: data.find(b"\n", len(data) - _TAIL_BYTES) + 1 or -_TAIL_BYTES]
            return bytes(data)
        except StepsetError:
            pass
    return b""


def _reports_in(tails: list[tuple[Pod, bytes]]) -> Reports:
    """Returns the reports in the last lines of logs. The lines of different pods are processed in their order."""
    reports = Reports(keep_lines=False)
    batches = (_batches(position, *tail) for position, tail in enumerate(tails))
    for _, position, batch in merge(*batches, key=lambda each: each[:2]):
        reports.see(tails[position][0].uid, batch)
    return reports


def _batches(position: int, pod: Pod, lines: bytes) -> Iterator[tuple[bytes, int, Batch]]:
    """Yields the output of a pod with its time, one batch for each second, and with `position`.

    All lines of a batch have the same time. A batch for each line would take longer to process.
    """
    cursor = LogCursor()
    splitter = Splitter(pod.source) if pod.agent else PlainSplitter(pod.source)
    second = b""
    for second, rows in groupby(BytesIO(lines), key=lambda row: row[:_SECOND]):
        yield second, position, _at(splitter.feed(cursor.feed(b"".join(rows))), cursor)
    yield second, position, _at(splitter.feed(cursor.finish()), cursor)
    yield second, position, _at(splitter.finish(), cursor)


def _at(batch: Batch, cursor: LogCursor) -> Batch:
    batch.at = cursor.printed_at
    return batch
