"""Reads the state of a run's top-level object. There is one function for each kind.

Sources: kubernetes-sigs/jobset v0.12.0 pkg/controllers; kubeflow/trainer v2.3.0 pkg/runtime/framework/plugins/jobset;
kubernetes v1.36 pkg/controller/job; volcano.sh/apis v1.13 batch/v1alpha1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field, structs

from stepset.plan.model import NODE
from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import (
    JOB,
    LOST_NODE_AFTER,
    MIN_NODES,
    PREFIX,
    PROGRAM,
    QUEUE_LABEL,
    QUEUE_PRIORITY_LABEL,
    RANKS,
    RUN,
    SUBMITTED_BY,
    TTL,
    VERDICT,
    WORLD_SIZE,
)
from stepset.targets.workload_kinds import RESTART_ATTEMPT, WORKLOAD_KINDS, target_of_workload
from stepset.unstructured import (
    Fields,
    conditions,
    holds,
    number,
    one_line,
    part,
    rows,
    seconds,
    text,
    time_of,
    to_number,
)
from stepset.watch.bounded_json import parse_json
from stepset.watch.cluster.ownership import controller_of
from stepset.watch.cluster.verdict import parse_verdict

_MAX_RANKS = 1024
"""The maximum number of ranks of a pod. An annotation with a larger number is ignored."""
_ACCOUNT = 300
"""The maximum number of characters of an account's name. The end of a longer name is omitted."""

Ended = Literal["", "Succeeded", "Failed"]


class Workload(Struct, frozen=True):
    """The top-level object of a run. Times are seconds since the epoch."""

    target: str
    kind: str
    name: str
    uid: str
    owner: str = ""  # the uid of its controller, if it has one
    owner_kind: str = ""  # the kind of its controller
    run: str = ""  # the name of the run
    job: str = ""  # the name of the job
    created: float = 0.0
    deletion_requested: float | None = None  # when its deletion was requested
    suspended: bool = False  # whether it is suspended
    queue: str = ""  # the Kueue queue in which it waits while it is suspended
    queue_priority: str = ""  # name of its WorkloadPriorityClass
    enqueued: bool = False  # whether it waits in a queue of its own controller (Volcano)
    ended: Ended = ""
    at: float | None = None  # when it finished
    reason: str = ""  # the reason in its status; for a Job, it is set when the failure is certain
    message: str = ""  # the message in its status
    restarting: bool = False  # whether its gang is being restarted
    attempt: int = 0  # the number of restarts of the gang so far
    stopped: float | None = None  # when its controller started to delete its pods, for any reason
    resumed: float | None = None  # when its last suspension ended; pods that were deleted before this time are ignored
    groups: Mapping[str, int] = field(default_factory=dict)  # group -> planned pods
    replicas: Mapping[str, int] = field(default_factory=dict)  # for a JobSet: group -> planned Jobs
    succeeded: int = 0  # the number of pods whose success its controller has recorded
    names_pods: bool = False  # for a Volcano Job: the name of a pod consists of its name, the group and the index
    pods_decide: bool = False  # whether the ends of its pods end the run, because its controller reports no end
    planned: int = 0  # for a StatefulSet: the planned number of pods; while it is scaled to zero, the number before
    counted: int = 0  # for a StatefulSet: the number of pods that its controller counts
    success: str = NODE  # the group that must succeed for the run to succeed
    needed: int = 1  # the number of pods of that group that must run, and must succeed unless `first` is set
    first: bool = False  # whether only pod 0 of that group must succeed; it exits after the others
    min_nodes: int | None = None  # for an elastic world: the minimum number of nodes
    elastic: bool = False  # whether its pods are replaced one by one
    deadline: int | None = None  # in seconds
    world_size: int | None = None  # the planned number of ranks, if it is known
    ranks: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # group -> (first rank, ranks per pod)
    lost_after: float | None = None  # seconds after which the pods of a lost node are force-deleted; None: never
    ttl: float | None = None  # seconds after which stepset may delete a finished run; None: never
    program: str = ""  # what the run executes
    labels: Mapping[str, str] = field(default_factory=dict)  # the labels of the job
    namespace: str = ""
    submitted_by: str = ""  # the account that submitted the run
    verdict: RunStatus | None = None  # the stored final status, if its controller confirms it
    unconfirmed: RunStatus | None = None  # the stored final status, if its controller does not confirm it yet
    unreadable: tuple[str, ...] = ()  # the annotations that cannot be read


def read_workload(data: Fields) -> Workload | None:
    """Reads a workload. Returns None for an object of another kind."""
    target = target_of_workload(data)
    if target is None:
        return None
    meta = part(data, "metadata")
    labels, notes = part(meta, "labels"), part(meta, "annotations")
    owner = controller_of(data)
    ranks = read_ranks(text(notes, RANKS))
    common = Workload(
        target=target,
        kind=text(data, "kind"),
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        owner=owner.uid,
        owner_kind=owner.kind,
        run=text(labels, RUN) or text(meta, "name"),
        job=text(labels, JOB),
        attempt=number(labels, RESTART_ATTEMPT),
        created=time_of(meta, "creationTimestamp") or 0.0,
        deletion_requested=time_of(meta, "deletionTimestamp"),
        queue=text(labels, QUEUE_LABEL),
        queue_priority=text(labels, QUEUE_PRIORITY_LABEL),
        world_size=number(notes, WORLD_SIZE) or None,
        min_nodes=number(notes, MIN_NODES) or None,
        ranks=ranks or {},
        lost_after=seconds(text(notes, LOST_NODE_AFTER)),
        ttl=seconds(text(notes, TTL)),
        program=text(notes, PROGRAM),
        labels=_own_labels(labels),
        namespace=text(meta, "namespace"),
        submitted_by=one_line(text(notes, SUBMITTED_BY), _ACCOUNT),
        unreadable=(RANKS,) if ranks is None else (),
        pods_decide=not WORKLOAD_KINDS[target].finishes,
    )
    return _with_verdict(_READERS[target](common, part(data, "spec"), part(data, "status")), text(notes, VERDICT))


def verdict_of(data: Fields) -> RunStatus | None:
    """Returns the stored final status of a run. Returns None if no confirmed status is stored."""
    workload = read_workload(data) if text(part(data, "metadata", "annotations"), VERDICT) else None
    return None if workload is None else workload.verdict


def _with_verdict(workload: Workload, stored: str) -> Workload:
    """Adds the stored verdict, either as a confirmed or as an unconfirmed verdict.

    The verdict is confirmed if the workload has finished with the result that the verdict contains. The verdict is
    unconfirmed if the workload has not finished. A suspended workload confirms a failure, because a caller suspends the
    run when it gives up. For a StatefulSet, one request stores the verdict, and a second request scales the StatefulSet
    to zero. A StatefulSet with this scale confirms any verdict. A forged verdict is no additional risk, because a user
    who may write the annotation may also suspend the workload.
    """
    if not stored:
        return workload
    verdict = parse_verdict(stored)
    if verdict is None:
        return structs.replace(workload, unreadable=(*workload.unreadable, VERDICT))
    verdict = verdict.with_ttl(workload.ttl).with_(**stored_fields(workload))
    if not (workload.ended or workload.suspended):
        return structs.replace(workload, unconfirmed=verdict)
    success = verdict.phase is Phase.SUCCEEDED
    ended_so = success == (workload.ended == "Succeeded") if workload.ended else not success or workload.pods_decide
    return structs.replace(workload, verdict=verdict) if ended_so else workload


def stored_fields(workload: Workload) -> dict[str, Any]:
    """Returns the fields of a `RunStatus` that are stored in the metadata of the workload."""
    return {
        "program": workload.program,
        "labels": dict(workload.labels),
        "namespace": workload.namespace,
        "submitted_by": workload.submitted_by,
    }


def _own_labels(labels: Fields) -> dict[str, str]:
    """Returns the labels that were set by neither stepset nor a controller, and the labels for a queue of Kueue."""
    queue = (QUEUE_LABEL, QUEUE_PRIORITY_LABEL)
    return {
        key: value
        for key, value in labels.items()
        if isinstance(value, str) and (key in queue or not (key.startswith(PREFIX) or "k8s.io/" in key))
    }


def combined(top: Workload, inner: Workload | None) -> Workload:
    """Returns a TrainJob with the state of its JobSet, but with the TrainJob's own result.

    The run has finished only when the TrainJob has copied the result of its JobSet.
    """
    if inner is None:
        return top
    return structs.replace(
        top,
        restarting=inner.restarting,
        attempt=inner.attempt,
        stopped=_earliest(top.stopped, inner.stopped),
        resumed=inner.resumed,
        groups=inner.groups,
        replicas=inner.replicas,
        success=inner.success,
        needed=inner.needed,
        first=inner.first,
        elastic=inner.elastic,
        deadline=top.deadline if top.deadline is not None else inner.deadline,
        message=top.message or inner.message,
    )


def _jobset(common: Workload, spec: Fields, status: Fields) -> Workload:
    by_type = conditions(status)
    jobs = {text(row, "name"): part(row, "template", "spec") for row in rows(spec, "replicatedJobs")}
    replicas = {text(row, "name"): number(row, "replicas", 1) for row in rows(spec, "replicatedJobs")}
    groups = {name: replicas[name] * number(job, "parallelism", 1) for name, job in jobs.items()}
    targets = part(spec, "successPolicy").get("targetReplicatedJobs")
    first = targets[0] if isinstance(targets, list) and targets else None
    success = first if isinstance(first, str) and first in jobs else next(iter(groups), NODE)
    return structs.replace(
        _with_end(common, by_type, "Completed"),
        suspended=spec.get("suspend") is True,
        restarting=holds(by_type.get("RestartingJobSet")),
        attempt=number(status, "restarts"),
        stopped=_since(by_type, "Failed", "Completed", "Suspended"),
        resumed=_resumed(by_type, spec.get("suspend") is True),
        groups=groups,
        replicas=replicas,
        **_world(jobs.get(success, {}), groups, success, common.min_nodes),
    )


def _trainjob(common: Workload, spec: Fields, status: Fields) -> Workload:
    by_type = conditions(status)
    nodes = number(part(spec, "trainer"), "numNodes", 1)
    return structs.replace(
        _with_end(common, by_type, "Complete"),
        suspended=spec.get("suspend") is True,
        stopped=_since(by_type, "Failed", "Complete", "Suspended"),
        groups={NODE: nodes},
        needed=nodes,
        deadline=_seconds(spec),
    )


def _job(common: Workload, spec: Fields, status: Fields) -> Workload:
    by_type = conditions(status)
    groups = {NODE: number(spec, "parallelism", 1)}
    # FailureTarget is set when the failure is certain and pods are being deleted. Failed is set after the pods exit.
    verdict = by_type.get("FailureTarget", {})
    reason = text(verdict, "reason") if holds(verdict) else ""
    return structs.replace(
        _with_end(structs.replace(common, reason=reason), by_type, "Complete"),
        suspended=spec.get("suspend") is True,
        stopped=_since(by_type, "FailureTarget", "SuccessCriteriaMet", "Failed", "Complete", "Suspended"),
        resumed=_resumed(by_type, spec.get("suspend") is True),
        groups=groups,
        succeeded=_succeeded(status),
        **_world(spec, groups, NODE, common.min_nodes),
    )


def _statefulset(common: Workload, spec: Fields, status: Fields) -> Workload:
    count, per_pod = number(spec, "replicas", 1), common.ranks.get(NODE, (0, 0))[1]
    return structs.replace(
        common,
        suspended=count == 0,
        groups={NODE: count},
        planned=count or (common.world_size or 0) // (per_pod or 1),
        needed=count,
        counted=number(status, "replicas"),
    )


def _volcano(common: Workload, spec: Fields, status: Fields) -> Workload:
    state = part(status, "state")
    phase, at = text(state, "phase"), time_of(state, "lastTransitionTime")
    tasks = rows(spec, "tasks")
    groups = {text(row, "name"): number(row, "replicas", 1) for row in tasks}
    done = [row for row in tasks if any(rule.get("action") == "CompleteJob" for rule in rows(row, "policies"))]
    success = text(done[0], "name") if done else next(iter(groups), NODE)
    ends: dict[str, Ended] = {"Completed": "Succeeded", "Failed": "Failed", "Terminated": "Failed"}
    ended = ends.get(phase, "")
    # Volcano also counts a restart that it does not perform because maxRetry is reached
    # (volcano v1.10 pkg/controllers/job/state/restarting.go).
    retries, most = number(status, "retryCount"), number(spec, "maxRetry")
    moving = phase in ("Restarting", "Completing", "Terminating", "Aborting")
    return structs.replace(
        common,
        enqueued=phase == "Pending",
        suspended=phase in ("Aborting", "Aborted"),
        ended=ended,
        at=at if ended else None,
        reason=text(state, "reason"),
        message=one_line(text(state, "message")),
        restarting=phase == "Restarting" and retries < most,
        attempt=min(retries, max(most - 1, 0)),
        stopped=at if ended or moving or phase == "Aborted" else None,
        groups=groups,
        names_pods=True,
        succeeded=number(status, "succeeded"),
        success=success,
        needed=groups.get(success, 1),
        deadline=next(filter(None, (_seconds(part(row, "template", "spec")) for row in tasks)), None),
    )


_READERS = {"jobset": _jobset, "trainjob": _trainjob, "statefulset": _statefulset, "job": _job, "volcano": _volcano}
if _READERS.keys() != WORKLOAD_KINDS.keys():
    raise TypeError(f"a target has no function that reads its workloads: {WORKLOAD_KINDS.keys() ^ _READERS.keys()}")


def _resumed(by_type: Mapping[str, Fields], suspended: bool) -> float | None:
    """Returns when the last suspension ended. Returns None if the run is suspended, or was never suspended.

    Returns infinity if the controller has not reported the time yet.
    """
    found = by_type.get("Suspended")
    if found is None or suspended:
        return None
    return math.inf if holds(found) else time_of(found, "lastTransitionTime")


def _with_end(common: Workload, by_type: Mapping[str, Fields], success: str) -> Workload:
    """Adds the result. A failure takes precedence over a success, as in JobSet's controller."""
    ended: tuple[tuple[Ended, str], ...] = (("Failed", "Failed"), ("Succeeded", success))
    for state, name in ended:
        if holds(found := by_type.get(name, {})):
            at, reason = time_of(found, "lastTransitionTime"), text(found, "reason")
            return structs.replace(common, ended=state, at=at, reason=reason, message=one_line(text(found, "message")))
    return common


def _world(job: Fields, groups: Mapping[str, int], success: str, min_nodes: int | None) -> dict[str, Any]:
    """Returns the fields of a Workload that depend on the Job that runs the ranks."""
    rules = rows(part(job, "podFailurePolicy"), "rules")
    enough = next(iter(rows(part(job, "successPolicy"), "rules")), {})
    return {
        "success": success,
        # If an earlier version of stepset created the run, the success policy contains min_nodes as succeededCount.
        "needed": number(enough, "succeededCount", min_nodes or groups.get(success, 1)),
        "first": text(enough, "succeededIndexes") == "0",
        # targets/kinds/failure_policy.py: only the Job of an elastic world ignores disruptions.
        "elastic": any(rule.get("action") == "Ignore" for rule in rules),
        "deadline": _seconds(job),
    }


def _seconds(spec: Fields) -> int | None:
    return to_number(spec.get("activeDeadlineSeconds")) or None


def _since(by_type: Mapping[str, Fields], *names: str) -> float | None:
    return _earliest(*(time_of(by_type[name], "lastTransitionTime") for name in names if holds(by_type.get(name))))


def _earliest(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _succeeded(status: Fields) -> int:
    """Returns how many pods of a Job have succeeded, including pods that its controller has not counted yet."""
    uncounted = part(status, "uncountedTerminatedPods").get("succeeded")
    return number(status, "succeeded") + (len(uncounted) if isinstance(uncounted, list) else 0)


def read_ranks(words: str) -> dict[str, tuple[int, int]] | None:
    """Reads the annotation with the ranks of each group's pods. Returns None if the annotation is invalid.

    The annotation is a JSON object: group -> [first rank, ranks per pod].
    """
    try:
        found = parse_json(words) if words else {}
    except ValueError:
        return None
    ranks = {group: _pair(pair) for group, pair in found.items()} if isinstance(found, dict) else {"": None}
    valid = {group: pair for group, pair in ranks.items() if pair is not None}
    return valid if len(valid) == len(ranks) else None


def _pair(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, count = to_number(value[0], -1), to_number(value[1], -1)
    return (first, count) if first >= 0 and 0 <= count <= _MAX_RANKS else None
