"""The properties of a pod that log readers need: its container, its ranks, and whether more lines follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.targets.names import CONTAINER
from stepset.unstructured import Fields, number, part, rows, text
from stepset.watch.cluster.pods import read_pod

Ranks = Mapping[str, tuple[int, int]]
"""Group -> the first rank of its pods, and the number of ranks per pod."""


@dataclass(frozen=True, slots=True)
class LogPod:
    """One pod.

    Args:
        container: the container whose log is read.
        index: the pod's index in its group.
        attempt: the number of gang restarts before the pod was created.
        source: the source of lines without a prefix `[source]`.
        agent: whether the agent runs in the pod and prefixes its lines.
        started: whether the container was started, so that a log exists.
        restarts: how often the container was started again.
        over: whether the container has ended and will not be started again.
        deleted: whether the pod was deleted.
        alive: whether the container was running when last seen.
    """

    uid: str
    name: str
    container: str
    group: str
    index: int
    attempt: int
    source: str
    agent: bool
    started: bool
    restarts: int
    over: bool
    deleted: bool
    alive: bool = False


def log_pod(data: Fields, deleted: bool = False) -> LogPod:
    """Reads a pod; `deleted` is whether it was deleted: then `data` is its last known state."""
    pod, spec, status = read_pod(data, deleted), part(data, "spec"), part(data, "status")
    containers = rows(spec, "containers")
    wanted = next((row for row in containers if text(row, "name") == CONTAINER), containers[0] if containers else {})
    name = text(wanted, "name")
    reported = next((row for row in rows(status, "containerStatuses") if text(row, "name") == name), {})
    ended = part(reported, "state", "terminated")
    for_good = text(spec, "restartPolicy") == "Never" and "restartPolicy" not in wanted
    return LogPod(
        uid=pod.uid,
        name=pod.name,
        container=name,
        group=pod.group,
        index=pod.index,
        attempt=pod.attempt,
        source=pod.source,
        agent=pod.agent,
        started=bool(part(reported, "state", "running") or ended or part(reported, "lastState", "terminated")),
        restarts=number(reported, "restartCount"),
        over=deleted or pod.phase in ("Succeeded", "Failed") or bool(ended and for_good),
        deleted=deleted,
        alive=bool(part(reported, "state", "running")),
    )


def may_hold(pod: LogPod, sources: frozenset[str] | None, ranks: Ranks) -> bool:
    """Whether a pod's log may hold lines of `sources`, such as `rank 3`, `node 0`, `launcher`, `prepare-0`; None: all.

    `ranks` is the workload's annotation; if it is empty, any pod may hold any rank.
    """
    if sources is None or pod.source in sources:
        return True
    wanted = [int(number) for kind, _, number in (s.partition(" ") for s in sources) if kind == "rank" and number]
    if not wanted or not ranks:
        return bool(wanted)
    first, each = ranks.get(pod.group, (0, 0))
    first += pod.index * each
    return any(first <= rank < first + each for rank in wanted)
