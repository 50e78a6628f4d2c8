"""`stepset logs` on Kubernetes: the lines of a run from its pods, at once and merged by time, or as they come.

Called by the backend. Needs no more of a run than its pods; what they no longer hold nobody can read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, BinaryIO

from stepset.backends.kubernetes.client import RefusedError, UnreachableError
from stepset.backends.kubernetes.log_follow import followed
from stepset.backends.kubernetes.log_pods import LogPod, log_pod, may_hold
from stepset.backends.kubernetes.log_rows import rows_of
from stepset.backends.kubernetes.log_spool import in_groups
from stepset.backends.kubernetes.pod_log import LAST_QUIET, NOT_YET, log_path, log_query, not_shown
from stepset.backends.kubernetes.site import PODS, Site
from stepset.backends.kubernetes.stream import Stream
from stepset.errors import InfrastructureError
from stepset.targets.identity import RUN
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.cluster.workload import read_workload
from stepset.watch.lines import Joiner, log_lines
from stepset.watch.resume import Resume
from stepset.watch.state import LogLine

_TRIES = 5
_BLOCK = 1 << 16
_AT_ONCE = 100
"""Pods whose logs are read at the same time; each takes a connection."""

Manifest = Mapping[str, Any]


def read_lines(
    site: Site, workload: Manifest, *, follow: bool = False, sources: frozenset[str] | None = None
) -> Iterator[LogLine]:
    """The lines of a run that its pods still hold, those of earlier attempts first.

    Args:
        site: where the run is.
        workload: its object on top, as it was read.
        follow: go on until the run is over; lines come as they are printed, else in the order of their times.
        sources: only theirs, such as `rank 0`; None: all.

    Raises:
        InfrastructureError: some of it cannot be read; what can be comes first.
    """
    if follow and verdict_of(workload) is None:
        joiners: dict[str, Joiner] = {}
        for pod, batch in followed(site, workload, sources):
            lines = log_lines(joiners.setdefault(pod, Joiner()).join(batch.lines))
            yield from lines if sources is None else (line for line in lines if line.source in sources)
        return
    for rows in _merged(site, workload, sources):
        for row in rows:
            head, _, text = row.partition(b"] ")
            yield LogLine(head[1:].decode(), text.decode("utf-8", "replace"))


def copy_lines(
    site: Site, workload: Manifest, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
) -> None:
    """Writes what `read_lines` gives as `[source] text` lines, bytes as they were printed.

    Args:
        site, workload, follow, sources: as for `read_lines`.
        out: where to.

    Raises:
        InfrastructureError: as `read_lines` does.
    """
    if follow and verdict_of(workload) is None:
        joiners: dict[str, Joiner] = {}
        for pod, batch in followed(site, workload, sources):
            joiner = joiners.setdefault(pod, Joiner())
            if sources is None and not batch.parts and not joiner.waiting:
                out.write(batch.shown)
            else:
                complete = joiner.join(batch.lines)
                kept = (each for each in complete if sources is None or each[0] in sources)
                out.writelines(b"[%s] %s\n" % (source.encode(), text) for source, text in kept)
            out.flush()
        return
    for rows in _merged(site, workload, sources):
        rows.append(b"")
        out.write(b"\n".join(rows))
    out.flush()


def _merged(site: Site, workload: Manifest, sources: frozenset[str] | None) -> Iterator[list[bytes]]:
    """Rows `[source] text` of what there is now."""
    run, known = str(workload["metadata"]["name"]), read_workload(workload)
    reply = site.connection.get(site.all(PODS), {"labelSelector": f"{RUN}={run}"})
    if not reply.accepted:
        raise not_shown(reply, site.namespace)
    ranks = known.ranks if known else {}
    pods = [pod for pod in map(log_pod, reply.body["items"]) if pod.begun and may_hold(pod, sources, ranks)]
    pods.sort(key=lambda pod: (pod.attempt, pod.group, pod.index))
    lost: list[InfrastructureError] = []
    for _, attempt in groupby(pods, key=lambda pod: pod.attempt):
        logs = [rows_of(pod, _stamped(site, pod, lost), sources) for pod in attempt]
        for _, rows in in_groups(logs, _AT_ONCE):
            yield rows
    if lost:
        raise lost[0]


def _stamped(site: Site, pod: LogPod, lost: list[InfrastructureError]) -> Iterator[bytes]:
    """One pod's log, with timestamps, up to now; what keeps it from being whole is added to `lost`."""
    resume = Resume(stamped=True)
    for previous in (True, False) if pod.restarts else (False,):
        tries = 0
        while tries < _TRIES:
            error: InfrastructureError | None = None
            try:
                query = log_query(pod, resume.since, previous=previous)
                with site.connection.stream(log_path(site.namespace, pod), query, LAST_QUIET) as stream:
                    for block in _blocks(stream):
                        if text := resume.feed(block):
                            tries = 0
                            yield text
                # Of the starts before, the kubelet keeps one, until the next has ended.
                if resume.complaint and not previous:
                    error = InfrastructureError(f"pod {pod.name}: its log cannot be read: {resume.complaint[:300]}")
            except UnreachableError as unreachable:
                error = unreachable
            except RefusedError as refused:
                if refused.reply.status not in (*NOT_YET, 404):
                    raise not_shown(refused.reply, site.namespace) from refused
            if error is None:
                break
            resume.cut()
            tries += 1
            if tries == _TRIES:
                lost.append(error)
            else:
                time.sleep(random.uniform(0.5, 1.0) * 0.2 * 2**tries)
        yield resume.finish()


def _blocks(stream: Stream) -> Iterator[bytes]:
    """What a stream brings in larger pieces: the server sends 2 KiB at a time."""
    some, size = [], 0
    while chunk := stream.read():
        some.append(chunk)
        size += len(chunk)
        if size >= _BLOCK:
            yield b"".join(some)
            some, size = [], 0
    if some:
        yield b"".join(some)
