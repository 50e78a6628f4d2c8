"""Reads the progress of a run from the end of one pod's log, without following the run."""

from __future__ import annotations

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import PODS
from stepset.errors import StepsetError
from stepset.plan.model import LAUNCHER
from stepset.run_status import Progress
from stepset.targets.names import CONTAINER
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.lines import Splitter
from stepset.watch.plain_lines import PlainSplitter
from stepset.watch.reported import merge_report

TAIL_LINES = 1000
"""The number of lines of the log that are read."""
_TAIL_BYTES = 4 * 1024 * 1024
"""The maximum number of bytes that are parsed. If the lines have more bytes, only the last bytes are parsed."""
_TIMEOUT = 5.0
"""The number of seconds to wait for the log. The kubelet of a lost node does not answer."""


async def read_progress(namespaced: NamespacedClient, objects: RunObjects) -> Progress | None:
    """Returns the progress from the last log lines of the pod that prints the output of rank 0.

    This is the launcher's pod if the run has a launcher. Returns None in three cases:

    - The lines contain no progress report.
    - The log cannot be read in time.
    - The account has no permission to read the log.
    """
    pod = _reporting_pod(objects)
    if pod is None:
        return None
    lines = b""
    with anyio.move_on_after(_TIMEOUT):
        try:
            lines = await _tail(namespaced, pod, ours=objects.workload is not None and bool(objects.workload.job))
        except StepsetError:
            return None
    splitter = Splitter(pod.source) if pod.agent else PlainSplitter(pod.source)
    progress: Progress | None = None
    for batch in (splitter.feed(lines), splitter.finish()):
        for report in batch.progress:
            progress = merge_report(progress, report)
    return progress


def _reporting_pod(objects: RunObjects) -> Pod | None:
    """Returns the pod that prints the output of rank 0.

    Returns None if the pod has not started or no longer exists.
    """
    workload = objects.workload
    pods = [pod for pod in objects.pods if pod.started is not None and not pod.deleted]
    launchers = [pod for pod in pods if pod.group == LAUNCHER]
    first = [pod for pod in pods if workload is not None and pod.group == workload.success and pod.index == 0]
    return next(iter([*launchers, *first]), None)


async def _tail(namespaced: NamespacedClient, pod: Pod, *, ours: bool) -> bytes:
    """Returns the last lines of a pod's log.

    If `ours` is true, stepset has rendered the pod, and the container's name is known.
    """
    query = {"tailLines": str(TAIL_LINES), **({"container": CONTAINER} if ours else {})}
    data = bytearray()
    path = f"{PODS.path(namespaced.namespace)}/{pod.name}/log"
    async with namespaced.client.stream(path, query, _TIMEOUT) as chunks:
        async for chunk in chunks:
            data += chunk
            if len(data) > 2 * _TAIL_BYTES:
                del data[:-_TAIL_BYTES]
    return bytes(data)
