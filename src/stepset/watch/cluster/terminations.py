"""Ends of pods as Observations, for the diagnosis: which pods failed by themselves, and which were only deleted.

When a pod fails, the controllers delete the rest of its gang. Kubernetes reports times in whole seconds, agents
exactly; where cause and effect share a second, exit codes and messages decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.plan.model import NODE
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import End, Pod
from stepset.watch.cluster.reports import PodReport, Reports
from stepset.watch.cluster.unstructured import integer
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import Observation, error_of, find_error, looks_like_aftermath
from stepset.watch.lines import finite
from stepset.watch.state import FailureKind

DELETED = "was ended from outside"
"""The end of a deleted pod, if no controller had a reason to delete it."""

OVERTIME = "DeadlineExceeded"
"""Reason of a pod, Job or TrainJob that took too long: a verdict on the run as a whole."""

_TOLD_CODES = (0, 128 + 1, 128 + 2, 128 + 15)
_KILLED = 128 + 9
_AGENT_CODES = {
    70: FailureKind.RENDEZVOUS,
    71: FailureKind.RENDEZVOUS,
    72: FailureKind.REJECTED,
    73: FailureKind.INFRASTRUCTURE,
}
"""docs/design/agent.md, How it ends."""

# Reasons of the condition DisruptionTarget (kubernetes v1.36 pkg/apis/core/types.go and the controllers that set it).
_DISRUPTIONS = {
    "PreemptionByScheduler": "was preempted",
    "EvictionByEvictionAPI": "was evicted",
    "TerminationByKubelet": "was ended by its node",
    "DeletionByTaintManager": "was taken off its node",
    "DeletionByPodGC": "was lost with its node",
}
_KINDS = {kind.value: kind for kind in FailureKind}


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Which pod holds which rank."""

    ranges: Mapping[str, tuple[int, int]]  # group -> (first rank, ranks per pod), as planned
    by_rank: Mapping[int, Pod]  # every known rank -> its pod

    def ranks_of(self, pod: Pod) -> range:
        """The ranks a pod is planned to hold, as far as that is known."""
        first, count = self.ranges.get(pod.group, (0, 0))
        return range(first + pod.index * count, first + (pod.index + 1) * count)


def homes(workload: Workload | None, pods: Sequence[Pod], reports: Reports) -> RankPlacement:
    """Which pod holds which rank: the agents' reports take precedence over the plan."""
    found = RankPlacement(workload.ranks if workload else {}, {})
    by_rank = {rank: pod for pod in pods for rank in found.ranks_of(pod)}
    for pod in pods:
        report = reports.of(pod.uid)
        if report is not None:
            by_rank.update({rank: pod for rank, said in report.ranks.items() if said.starts})
    return replace(found, by_rank=by_rank)


def observations(
    pods: Sequence[Pod],
    objects: RunObjects,
    reports: Reports,
    where: RankPlacement,
    *,
    present: bool = True,
    blame_told: bool = False,
) -> list[Observation]:
    """Every unsuccessful end of some pods.

    `present`: the pods are of the present attempt, to which the workload's conditions refer. `blame_told`: no other
    failure is known, so the pod whose deletion was requested first is the cause.
    """
    own: list[Observation] = []
    told: list[Pod] = []
    for pod in pods:
        if pod.succeeded:
            continue
        report = reports.of(pod.uid)
        if _told_to_end(pod):
            told.append(pod)
            if report is not None and pod.asked is not None:
                own += [seen for seen in _reported(pod, report, where) if seen.at < pod.asked]
        else:
            own += _failures(pod, report, where)
    first = min((o.at for o in own if not looks_like_aftermath(o)), default=math.inf)
    ends = [(pod, _stop_of(pod, objects, first, present)) for pod in told]
    if blame_told:
        earliest = min((pod.asked or 0.0 for pod in told), default=0.0)
        ends = [(pod, (pod.asked or 0.0) > earliest) for pod in told]
    return own + [_deleted(pod, stopped, where) for pod, stopped in ends]


def _told_to_end(pod: Pod) -> bool:
    """Whether a pod ended, or is to end, because it was deleted and not because something in it failed."""
    if pod.asked is None:
        return pod.gone and pod.end is None and pod.phase != "Failed"
    if pod.disruption is not None:
        return False
    end = pod.end
    if end is None or end.at is None:
        return True
    if end.said.failed is not None:
        return False  # an agent that is only stopped reports no failure
    # The time of its deletion changes when a pod has ended: the exit code still shows that it was stopped.
    return end.at > pod.asked or end.exit_code in _TOLD_CODES


def _stop_of(pod: Pod, objects: RunObjects, first: float, present: bool) -> bool:
    """Whether a pod was deleted because the run, or its attempt, was over or stopped."""
    causes = [math.floor(first) if first < math.inf else math.inf]
    workload = objects.workload
    if present and workload is not None:
        stops = [workload.stopped, workload.deleted]
        stops += [job.stopped for job in objects.jobs if job.name == pod.job or job.ended == "Failed"]
        causes += [at for at in stops if at is not None]
        if workload.suspended or objects.fate:
            return True
    asked = pod.asked if pod.asked is not None else math.inf
    return asked >= min(causes) and min(causes) < math.inf


def _deleted(pod: Pod, stopped: bool, where: RankPlacement) -> Observation:
    return _of_pod(
        pod,
        where,
        pod.asked or _end_time(pod),
        exit_code=pod.end.exit_code if pod.end is not None else None,
        error="" if stopped else "somebody deleted its pod",
        kind=None if stopped else FailureKind.INFRASTRUCTURE,
        stopped=stopped,
        how="was stopped" if stopped else DELETED,
    )


def _failures(pod: Pod, report: PodReport | None, where: RankPlacement) -> Iterator[Observation]:
    """What failed in a pod that was not deleted."""
    if pod.disruption is not None and not _before(pod.end, pod.disruption.at):
        yield _of_pod(
            pod,
            where,
            at=pod.disruption.at,
            kind=FailureKind.INFRASTRUCTURE,
            how=_disrupted(pod, pod.disruption.reason),
            error=pod.message or pod.disruption.message,
        )
        return
    if pod.reason == OVERTIME:
        yield _of_pod(pod, where, _end_time(pod), kind=FailureKind.DEADLINE_EXCEEDED, how="failed", stopped=True)
        return
    end = pod.end
    if pod.reason and pod.phase == "Failed":
        yield _of_pod(
            pod,
            where,
            at=(end.at if end else None) or pod.scheduled or pod.created,
            # Without the condition DisruptionTarget the pod exceeded its own limits, not the node's capacity.
            kind=FailureKind.USER_ERROR if pod.reason == "Evicted" else FailureKind.INFRASTRUCTURE,
            how=_by_node(pod),
            error=pod.message or pod.reason,
        )
        return
    if report is not None:
        yield from _reported(pod, report, where)
    if end is None:
        if pod.phase == "Failed":
            at, kind = pod.started or pod.created, FailureKind.INFRASTRUCTURE
            yield _of_pod(pod, where, at, kind=kind, how="failed", error=pod.message)
        return
    if end.reason in ("StartError", "ContainerCannotRun"):
        yield _of_pod(pod, where, at=end.at, kind=FailureKind.REJECTED, how="could not be started", error=end.message)
    elif end.said.failed is not None:
        yield _verdict(pod, end, end.said.failed, where)
    else:
        yield from _unsaid(pod, end, report, where)


def _disrupted(pod: Pod, reason: str) -> str:
    if reason == "DeletionByTaintManager" and (pod.silent or (pod.end is None and pod.over)):
        return "was lost with its node"  # which never reported its end
    return _DISRUPTIONS.get(reason, "was ended by the cluster")


def _by_node(pod: Pod) -> str:
    if pod.reason == "Evicted":
        return "was evicted"
    return "was refused by its node" if pod.started is None else "was ended by its node"


def _before(end: End | None, at: float | None) -> bool:
    """Whether a container had failed before that time."""
    if end is None or end.at is None or at is None or end.exit_code in _TOLD_CODES:
        return False
    exact = finite(end.said.failed.get("at")) if end.said.failed is not None else None
    return (exact if exact is not None else end.at) < at


def _verdict(pod: Pod, end: End, failed: Mapping[str, Any], where: RankPlacement) -> Observation:
    """The agent's verdict in the termination message."""
    seen = _event(pod, failed, where)
    tail = failed.get("tail")
    lines = tuple(str(line) for line in tail) if isinstance(tail, list) else ()
    return _with_memory(replace(seen, tail=lines), end)


def _reported(pod: Pod, report: PodReport, where: RankPlacement) -> Iterator[Observation]:
    """The failed ranks in the agent's output."""
    for said in report.ranks.values():
        for event in (said.ended, said.failed):
            if event is not None and (event is said.failed or event.get("exit_code") != 0):
                seen = _event(pod, event, where)
                seen = replace(seen, tail=report.tail(seen.source))
                yield _with_memory(seen, pod.end) if pod.end is not None else seen
    if report.failed is not None:
        yield replace(_event(pod, report.failed, where), tail=report.tail(pod.source))


def _unsaid(pod: Pod, end: End, report: PodReport | None, where: RankPlacement) -> Iterator[Observation]:
    """A pod that failed without an agent's verdict: by its exit code and its last lines."""
    for event in end.said.events:
        failed = event.get("event") == "failed"
        if failed or (event.get("event") == "exited" and event.get("exit_code") != 0):
            seen = _event(pod, event, where)
            yield _with_memory(replace(seen, tail=end.said.tails.get(seen.source, ())), end)
    seen = _of_pod(
        pod,
        where,
        _end_time(pod),
        exit_code=end.exit_code,
        kind=_AGENT_CODES.get(end.exit_code) if pod.agent and not end.said.events else None,
        how="" if end.main else f"failed, as its container {end.container} exited with code {end.exit_code}",
    )
    tails = end.said.tails
    tail = tails.get(seen.source) or tails.get(pod.source) or tails.get("") or _guilty(tails)
    if not tail and report is not None:
        tail = report.tail(seen.source) or report.tail(pod.source)
    yield _with_memory(replace(seen, tail=tail), end)


def _guilty(tails: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Of several sources' last lines, the last that hold an error, else those of the last source."""
    guilty = [tail for tail in tails.values() if find_error(tail)]
    return (guilty or list(tails.values()) or [()])[-1]


def _event(pod: Pod, event: Mapping[str, Any], where: RankPlacement) -> Observation:
    """An agent's report of an end as an observation."""
    rank, kind = integer(event, "rank"), event.get("kind")
    # A launcher's pod reports ranks of other pods.
    home = pod if rank is None else where.by_rank.get(rank, pod)
    return Observation(
        source=pod.source if rank is None else f"rank {rank}",
        at=finite(event.get("at")) or _end_time(pod),
        rank=rank,
        pod=home.name,
        node=home.node,
        exit_code=integer(event, "exit_code"),
        signal=integer(event, "signal"),
        error=str(event.get("error") or ""),
        kind=_KINDS.get(kind) if isinstance(kind, str) else None,
    )


def _with_memory(seen: Observation, end: End) -> Observation:
    """Adds the kubelet's knowledge about memory, except to ranks that only lost a peer."""
    if end.reason == "OOMKilled":
        return seen if seen.kind is not None or looks_like_aftermath(seen) else replace(seen, out_of_memory=True)
    killed = seen.exit_code == _KILLED or seen.signal == _KILLED - 128
    # The kubelet reports OOMKilled if the container ran out of memory: this SIGKILL had another sender.
    return replace(seen, out_of_memory=False) if killed and seen.kind is None and not error_of(seen) else seen


def _of_pod(pod: Pod, where: RankPlacement, at: float | None, **known: Any) -> Observation:
    """What happened to a pod as a whole: its rank's end if it holds a single one, else its own."""
    ranks = where.ranks_of(pod)
    rank = ranks[0] if len(ranks) == 1 and pod.group == NODE else None
    source = pod.source if rank is None else f"rank {rank}"
    return Observation(source, at or math.inf, rank, pod.name, pod.node, **known)


def _end_time(pod: Pod) -> float:
    """When the pod's container ended; infinite if unknown."""
    return pod.end.at if pod.end is not None and pod.end.at is not None else math.inf


def tails(pods: Iterable[Pod]) -> dict[str, str]:
    """Source -> its last line, from termination messages."""
    found = {}
    for pod in pods:
        if pod.end is None:
            continue
        said = pod.end.said
        found.update({source or pod.source: tail[-1] for source, tail in said.tails.items() if tail})
        if said.failed is not None:
            tail, rank = said.failed.get("tail"), said.failed.get("rank")
            if isinstance(tail, list) and tail:
                found[pod.source if rank is None else f"rank {rank}"] = str(tail[-1])
    return found
