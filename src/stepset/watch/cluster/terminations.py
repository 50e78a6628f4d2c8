"""Converts exits and deletions of pods into Observations for the diagnosis.

When a pod fails, the controllers delete the other pods of its gang. This module decides which pods failed, and which
pods were only deleted. Kubernetes reports times in whole seconds, and agents report exact times. If a cause and its
effect occur in the same second, this module uses exit codes and messages to distinguish them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepset.plan.model import NODE
from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.unstructured import integer, moment
from stepset.watch.advice import failed_container_advice
from stepset.watch.agent_events import observation_of
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import End, Pod
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import TAIL, Observation, error_of, find_error, may_be_aftermath
from stepset.watch.state.reports import PodReport, Reports

DELETED = "was ended from outside"
"""What happened to a deleted pod if no controller recorded a reason."""

POD_DELETED = "its pod was deleted"
"""The error of a deleted pod if no controller has recorded a reason."""

LOST_WITH_NODE = "was lost with its node"

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""The reason of a pod, Job or TrainJob that exceeded its deadline. It means a failure of the whole run."""

_STOP_CODES = (0, 128 + 1, 128 + 2, 128 + 15)
_KILLED = 128 + 9
AGENT_CODES = {
    70: FailureKind.RENDEZVOUS,
    71: FailureKind.RENDEZVOUS,
    72: FailureKind.REJECTED,
    73: FailureKind.INFRASTRUCTURE,
    74: FailureKind.USER_ERROR,
    75: FailureKind.INFRASTRUCTURE,
}
"""The kind of failure for each exit code of the agent (docs/design/agent.md, section "The end")."""

# The reasons of the condition DisruptionTarget (kubernetes v1.36 pkg/apis/core/types.go, and the controllers that set
# it).
_DISRUPTIONS = {
    "PreemptionByScheduler": "was preempted",
    "EvictionByEvictionAPI": "was evicted",
    "TerminationByKubelet": "was ended by its node",
    "DeletionByTaintManager": "was removed from its node",
    "DeletionByPodGC": LOST_WITH_NODE,
}


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """The pods on which the ranks run."""

    ranges: Mapping[str, tuple[int, int]]  # group -> (first rank, ranks per pod), as planned
    by_rank: Mapping[int, Pod]  # every known rank -> its pod

    def ranks_of(self, pod: Pod) -> range:
        """Returns the ranks that the plan assigns to a pod, or an empty range if they are unknown."""
        first, count = self.ranges.get(pod.group, (0, 0))
        return range(first + pod.index * count, first + (pod.index + 1) * count)


def rank_placement(workload: Workload | None, pods: Sequence[Pod], reports: Reports) -> RankPlacement:
    """Returns which pod runs which rank. The reports of the agents take precedence over the plan."""
    found = RankPlacement(workload.ranks if workload else {}, {})
    by_uid = {pod.uid: pod for pod in pods}
    planned = {rank: pod for pod in pods for rank in found.ranks_of(pod)}
    started = {rank: by_uid[uid] for rank, uid in reports.placement(by_uid).items()}
    return replace(found, by_rank={**planned, **started})


def observations(
    pods: Sequence[Pod],
    objects: RunObjects,
    reports: Reports,
    placement: RankPlacement,
    *,
    present: bool = True,
    blame_deleted: bool = False,
) -> list[Observation]:
    """Returns an observation for every failure, every exit of a rank and every deletion of the given pods.

    Args:
        present: whether the pods belong to the current attempt. The conditions of the workload refer to this attempt.
        blame_deleted: whether to report the pod with the earliest request for deletion as the cause. Use True if no
            other failure is known.
    """
    own: list[Observation] = []
    deleted: list[Pod] = []
    for pod in pods:
        report = reports.of(pod.uid)
        own += _early_exits(pod, report, placement)
        if pod.succeeded:
            continue
        if _ended_by_deletion(pod):
            deleted.append(pod)
            if pod.deletion_requested is not None:
                own += [seen for seen in _reported(pod, report, placement) if seen.at < pod.deletion_requested]
        else:
            own += _failures(pod, report, placement)
    first = min((o.at for o in own if not o.succeeded and not may_be_aftermath(o)), default=math.inf)
    ends = [(pod, _stop_of(pod, objects, first, present)) for pod in deleted]
    if blame_deleted:
        earliest = min((pod.deletion_requested or 0.0 for pod in deleted), default=0.0)
        ends = [(pod, (pod.deletion_requested or 0.0) > earliest) for pod in deleted]
    return own + [_deleted(pod, stopped, placement) for pod, stopped in ends]


def _early_exits(pod: Pod, report: PodReport, placement: RankPlacement) -> Iterator[Observation]:
    """Yields an observation for each rank of a pod that has exited with code 0, unless the pod was being deleted."""
    ended = [rank.ended for rank in report.ranks.values() if rank.ended is not None]
    for event in ended:
        if event.get("exit_code") == 0:
            seen = replace(_event(pod, event, placement), succeeded=True)
            if seen.at < (pod.deletion_requested or math.inf):
                yield seen
    if pod.succeeded and not ended and placement.ranks_of(pod):
        yield _of_pod(pod, placement, _end_time(pod), exit_code=0, succeeded=True)


def _ended_by_deletion(pod: Pod) -> bool:
    """Returns whether a pod exited or will exit because it was deleted. If False, something in the pod failed."""
    if pod.lost:
        return False
    if pod.deletion_requested is None:
        return pod.deleted and pod.end is None and pod.phase != "Failed"
    if pod.disruption is not None:
        return False
    end = pod.end
    if end is None or end.at is None:
        return True
    if end.termination_message.failed is not None:
        return False  # if an agent was only stopped, it reports no failure
    # The deletion time of a pod changes after the pod has exited. The exit code still shows that the pod was stopped.
    return end.at > pod.deletion_requested or end.exit_code in _STOP_CODES


def _stop_of(pod: Pod, objects: RunObjects, first: float, present: bool) -> bool:
    """Returns whether a pod was deleted because the run, or the pod's attempt, finished or was stopped."""
    causes = [math.floor(first) if first < math.inf else math.inf]
    workload = objects.workload
    if present and workload is not None:
        stops = [workload.stopped, workload.deletion_requested]
        stops += [job.stopped for job in objects.jobs if job.name == pod.job or job.ended == "Failed"]
        causes += [at for at in stops if at is not None]
        if workload.suspended or objects.absence:
            return True
    requested = pod.deletion_requested if pod.deletion_requested is not None else math.inf
    return requested >= min(causes) and min(causes) < math.inf


def _deleted(pod: Pod, stopped: bool, placement: RankPlacement) -> Observation:
    return _of_pod(
        pod,
        placement,
        pod.deletion_requested or _end_time(pod),
        exit_code=pod.end.exit_code if pod.end is not None else None,
        error="" if stopped else POD_DELETED,
        kind=None if stopped else FailureKind.INFRASTRUCTURE,
        stopped=stopped,
        how="was stopped" if stopped else DELETED,
    )


def _failures(pod: Pod, report: PodReport, placement: RankPlacement) -> Iterator[Observation]:
    """Yields the failures in a pod that was not deleted."""
    if pod.disruption is not None and not _before(pod.end, pod.disruption.at):
        yield _of_pod(
            pod,
            placement,
            at=pod.disruption.at,
            kind=FailureKind.INFRASTRUCTURE,
            how=_disrupted(pod, pod.disruption.reason),
            error=pod.message or pod.disruption.message,
        )
        return
    if pod.lost:
        at = pod.deletion_requested or pod.started
        yield _of_pod(pod, placement, at, kind=FailureKind.INFRASTRUCTURE, how=LOST_WITH_NODE)
        return
    if pod.reason == DEADLINE_EXCEEDED:
        yield _of_pod(pod, placement, _end_time(pod), kind=FailureKind.DEADLINE_EXCEEDED, how="failed", stopped=True)
        return
    end = pod.end
    if pod.reason and pod.phase == "Failed":
        yield _of_pod(
            pod,
            placement,
            at=(end.at if end else None) or pod.scheduled or pod.created,
            # If the condition DisruptionTarget is missing, the pod exceeded its own limits and not the node's capacity.
            kind=FailureKind.USER_ERROR if pod.reason == "Evicted" else FailureKind.INFRASTRUCTURE,
            how=_by_node(pod),
            error=pod.message or pod.reason,
        )
        return
    yield from _reported(pod, report, placement)
    if end is None:
        if pod.phase == "Failed":
            at, kind = pod.started or pod.created, FailureKind.INFRASTRUCTURE
            yield _of_pod(pod, placement, at, kind=kind, how="failed", error=pod.message)
        return
    if end.reason in ("StartError", "ContainerCannotRun"):
        known = {"how": "could not be started", **_of_other_container(pod, end, "could not be started")}
        yield _of_pod(pod, placement, at=end.at, kind=FailureKind.REJECTED, error=end.message, **known)
    elif end.termination_message.failed is not None:
        yield _verdict(pod, end, end.termination_message.failed, placement)
    else:
        yield from _without_verdict(pod, end, report, placement)


def _disrupted(pod: Pod, reason: str) -> str:
    if reason == "DeletionByTaintManager" and (pod.silent or (pod.end is None and pod.over)):
        return LOST_WITH_NODE  # the node has never reported the exit of the pod
    return _DISRUPTIONS.get(reason, "was ended by the cluster")


def _by_node(pod: Pod) -> str:
    if pod.reason == "Evicted":
        return "was evicted"
    return "was refused by its node" if pod.started is None else "was ended by its node"


def _before(end: End | None, at: float | None) -> bool:
    """Returns whether a container failed before a time."""
    if end is None or end.at is None or at is None or end.exit_code in _STOP_CODES:
        return False
    exact = moment(end.termination_message.failed, "at") if end.termination_message.failed is not None else None
    return (exact if exact is not None else end.at) < at


def _verdict(pod: Pod, end: End, failed: Mapping[str, Any], placement: RankPlacement) -> Observation:
    """Returns an observation for the agent's verdict in the termination message."""
    seen = _event(pod, failed, placement)
    tail = failed.get("tail")
    lines = tuple(str(line) for line in tail) if isinstance(tail, list) else ()
    return _with_memory(replace(seen, tail=lines), pod, end)


def _reported(pod: Pod, report: PodReport, placement: RankPlacement) -> Iterator[Observation]:
    """Yields an observation for each failed rank in the agent's output."""
    for rank in report.ranks.values():
        for event in (rank.ended, rank.failed):
            if event is not None and (event is rank.failed or event.get("exit_code") != 0):
                seen = _event(pod, event, placement)
                seen = replace(seen, tail=report.tail(seen.source))
                yield _with_memory(seen, pod, pod.end) if pod.end is not None else seen
    if report.failed is not None:
        yield replace(_event(pod, report.failed, placement), tail=report.tail(pod.source))


def _without_verdict(pod: Pod, end: End, report: PodReport, placement: RankPlacement) -> Iterator[Observation]:
    """Yields observations for a pod that failed without a verdict. Uses the exit code and the last lines of the pod."""
    for event in end.termination_message.events:
        failed = event.get("event") == "failed"
        if failed or (event.get("event") == "exited" and event.get("exit_code") != 0):
            seen = _event(pod, event, placement)
            yield _with_memory(replace(seen, tail=end.termination_message.tails.get(seen.source, ())), pod, end)
    seen = _of_pod(
        pod,
        placement,
        _end_time(pod),
        exit_code=end.exit_code,
        kind=AGENT_CODES.get(end.exit_code) if pod.agent and not end.termination_message.events else None,
        **_of_other_container(pod, end, f"exited with code {end.exit_code}"),
    )
    tails = end.termination_message.tails
    tail = tails.get(seen.source) or tails.get(pod.source) or tails.get("") or _with_error(tails)
    yield _with_memory(replace(seen, tail=tail or report.tail(seen.source) or report.tail(pod.source)), pod, end)


def _of_other_container(pod: Pod, end: End, what: str) -> dict[str, str]:
    """Returns the fields `how` and `advice` of an observation if `container` is not the container with the command."""
    if end.main:
        return {}
    container = f"{'init ' if end.init else ''}container {end.container}"
    advice = failed_container_advice(pod.name, end.container, pod.namespace)
    return {"how": f"failed, as its {container} {what}", "advice": advice}


def _with_error(tails: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the last lines of the last source that contains an error.

    If no source contains an error, returns the last lines of the last source.
    """
    with_error = [tail for tail in tails.values() if find_error(tail[-TAIL:])]
    return (with_error or list(tails.values()) or [()])[-1]


def _event(pod: Pod, event: Mapping[str, Any], placement: RankPlacement) -> Observation:
    """Returns an observation for an agent's event about a failure or an exit."""
    rank = integer(event, "rank")
    # The pod of the launcher also reports ranks that run in other pods.
    rank_pod = pod if rank is None else placement.by_rank.get(rank, pod)
    source = pod.source if rank is None else f"rank {rank}"
    return observation_of(event, source, _end_time(pod), rank=rank, pod=rank_pod.name, node=rank_pod.node)


def _with_memory(seen: Observation, pod: Pod, end: End) -> Observation:
    """Records in an observation whether the kubelet reports that memory was exhausted, and the memory limit of a node.

    An observation of a rank that only lost a peer is not changed.
    """
    if pod.group == NODE and end.main:
        seen = replace(seen, memory_limit=end.memory_limit)
    if end.reason == "OOMKilled":
        return seen if seen.kind is not None or may_be_aftermath(seen) else replace(seen, out_of_memory=True)
    killed = seen.exit_code == _KILLED or seen.signal == _KILLED - 128
    # If the container had exhausted its memory, the kubelet would report OOMKilled. This SIGKILL has another sender.
    return replace(seen, out_of_memory=False) if killed and seen.kind is None and not error_of(seen) else seen


def _of_pod(pod: Pod, placement: RankPlacement, at: float | None, **known: Any) -> Observation:
    """Returns an observation for a pod as a whole.

    If the pod has exactly one rank, the observation is for this rank.
    """
    ranks = placement.ranks_of(pod)
    rank = ranks[0] if len(ranks) == 1 and pod.group == NODE else None
    source = pod.source if rank is None else f"rank {rank}"
    return Observation(source, at or math.inf, rank, pod.name, pod.node, **known)


def _end_time(pod: Pod) -> float:
    """Returns when the container of the pod exited, or infinity if this time is unknown."""
    return pod.end.at if pod.end is not None and pod.end.at is not None else math.inf


def tails(pods: Iterable[Pod]) -> dict[str, str]:
    """Returns the last line of each source in the termination messages."""
    found = {}
    for pod in pods:
        if pod.end is None:
            continue
        message = pod.end.termination_message
        found.update({source or pod.source: tail[-1] for source, tail in message.tails.items() if tail})
        if message.failed is not None:
            tail, rank = message.failed.get("tail"), integer(message.failed, "rank")
            if isinstance(tail, list) and tail:
                found[pod.source if rank is None else f"rank {rank}"] = str(tail[-1])
    return found


def was_deleted(status: RunStatus) -> bool:
    """Returns whether a run has finished because the run or one of its pods was deleted.

    If a namespace is deleted, its pods are deleted first. Therefore the runs in this namespace fail.
    """
    failure = status.failure
    cancelled = failure is not None and (failure.kind is FailureKind.CANCELLED or failure.error == POD_DELETED)
    return status.phase is Phase.LOST or cancelled
