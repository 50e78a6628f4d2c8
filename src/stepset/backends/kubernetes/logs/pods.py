"""`LogPod`, the properties of a pod that log readers need, such as its container and its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepset.targets.names import CONTAINER
from stepset.unstructured import Fields, number, part, rows, text, time_of
from stepset.watch.cluster.pods import read_pod

Ranks = Mapping[str, tuple[int, int]]
"""A mapping from the name of a group of pods to a tuple: the first rank of the group, and the ranks per pod."""


@dataclass(frozen=True, slots=True)
class LogPod:
    """The properties of one pod that log readers need.

    Args:
        container: the name of the container whose log is read.
        index: the pod's index in its group.
        attempt: the number of restarts of the gang before the pod was created.
        source: the source of log lines that do not begin with a prefix of the form `[source]`.
        agent: whether the agent runs in the pod. The agent adds a prefix to each line.
        started: whether the container was started. A container that was not started has no log.
        restarts: the number of restarts of the container.
        over: whether the container has terminated and will not be restarted.
        deleted: whether the pod was deleted.
        alive: whether the container was running in the pod's last known state.
        ended: when the container terminated, in seconds since the epoch by the node's clock. None if this time is
            unknown.
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
    ended: float | None = None


def log_pod(data: Fields, deleted: bool = False) -> LogPod:
    """Returns the LogPod of a pod. `deleted` is true if the pod was deleted. `data` is the last known state."""
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
        ended=time_of(ended, "finishedAt"),
    )


def may_hold(pod: LogPod, sources: frozenset[str] | None, ranks: Ranks) -> bool:
    """Returns whether a pod's log may contain lines of `sources`.

    Args:
        sources: for example `rank 3`, `node 0`, `launcher` or `prepare-0`. None means all sources.
        ranks: the ranks of each group, from the workload's annotation. An empty mapping means that any rank may run in
            any pod.
    """
    if sources is None or pod.source in sources:
        return True
    wanted = [int(number) for kind, _, number in (s.partition(" ") for s in sources) if kind == "rank" and number]
    if not wanted or not ranks:
        return bool(wanted)
    first, each = ranks.get(pod.group, (0, 0))
    first += pod.index * each
    return any(first <= rank < first + each for rank in wanted)
