"""The properties of a pod that a log reader needs: its log, its ranks, whether more lines follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.targets.names import CONTAINER
from stepset.watch.cluster.pods import read_pod
from stepset.watch.cluster.unstructured import Fields, number, part, rows, text

Ranks = Mapping[str, tuple[int, int]]
"""Group -> the first rank of its pods, and the number of ranks per pod."""


@dataclass(frozen=True, slots=True)
class LogPod:
    """One pod.

    Args:
        container: the one whose log is read.
        index: of the pod in its group.
        attempt: gang restarts before the pod.
        source: of the lines that have no head.
        agent: whether the agent runs in the pod; without it no line has a head.
        begun: the container was started, so that there is a log.
        restarts: how often the container was started again.
        over: the container has ended and will not be started again.
        gone: the pod was deleted.
        alive: the container was running when last seen.
    """

    uid: str
    name: str
    container: str
    group: str
    index: int
    attempt: int
    source: str
    agent: bool
    begun: bool
    restarts: int
    over: bool
    gone: bool
    alive: bool = False


def log_pod(data: Fields, gone: bool = False) -> LogPod:
    """Reads a pod; `gone`: it was deleted, and `data` is how it was last seen."""
    pod, spec, status = read_pod(data, gone), part(data, "spec"), part(data, "status")
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
        begun=bool(part(reported, "state", "running") or ended or part(reported, "lastState", "terminated")),
        restarts=number(reported, "restartCount"),
        over=gone or pod.phase in ("Succeeded", "Failed") or bool(ended and for_good),
        gone=gone,
        alive=bool(part(reported, "state", "running")),
    )


def may_hold(pod: LogPod, sources: frozenset[str] | None, ranks: Ranks) -> bool:
    """Whether a pod's log may hold lines of `sources`, such as `rank 3`, `node 0`, `launcher`, `prepare-0`; None: all.

    `ranks` are as the workload states them; empty if it does not, and then any pod may hold any rank.
    """
    if sources is None or pod.source in sources:
        return True
    wanted = [int(number) for kind, _, number in (s.partition(" ") for s in sources) if kind == "rank" and number]
    if not wanted or not ranks:
        return bool(wanted)
    first, each = ranks.get(pod.group, (0, 0))
    first += pod.index * each
    return any(first <= rank < first + each for rank in wanted)
