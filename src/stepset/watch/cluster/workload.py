"""Reads the state of a run's top-level object, with one function per kind.

Sources: kubernetes-sigs/jobset v0.12.0 pkg/controllers; kubeflow/trainer v2.3.0 pkg/runtime/framework/plugins/jobset;
kubernetes v1.36 pkg/controller/job; volcano.sh/apis v1.13 batch/v1alpha1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stepset.plan.model import NODE
from stepset.run_status import Phase, RunStatus
from stepset.targets.metadata import (
    JOB,
    LOST_NODE_AFTER,
    MIN_NODES,
    PREFIX,
    PROGRAM,
    QUEUE_LABEL,
    RANKS,
    RUN,
    TTL,
    VERDICT,
    WORLD_SIZE,
)
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

_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"  # a label of a JobSet's Jobs

_MAX_RANKS = 1024
"""The maximum number of ranks of a pod; an annotation that states more is ignored."""

Ended = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class Workload:
    """The top-level object of a run. Times are seconds since the epoch."""

    kind: str
    name: str
    uid: str
    owner: str = ""  # uid of its controller, if any
    owner_kind: str = ""  # kind of its controller
    run: str = ""  # name of the run
    job: str = ""  # name of the job
    created: float = 0.0
    deletion_requested: float | None = None  # when its deletion was requested
    suspended: bool = False  # whether it is suspended
    queue: str = ""  # the Kueue queue that it waits in while suspended
    enqueued: bool = False  # whether it waits in a queue of its own controller (Volcano)
    ended: Ended = ""
    at: float | None = None  # when it ended
    reason: str = ""  # as its status reports it; for a Job, set as soon as its failure is certain
    message: str = ""  # as its status reports it
    restarting: bool = False  # whether its gang is being restarted
    attempt: int = 0  # gang restarts so far
    stopped: float | None = None  # when its controller started to delete its pods, for any reason
    resumed: float | None = None  # when its last suspension ended; pods deleted before are ignored
    groups: Mapping[str, int] = field(default_factory=dict)  # group -> planned pods
    replicas: Mapping[str, int] = field(default_factory=dict)  # of a JobSet: group -> planned Jobs
    succeeded: int = 0  # pods whose success its controller has recorded
    counted: int = 0  # of a StatefulSet: pods that its controller counts
    success: str = NODE  # the group that must succeed for the run to succeed
    needed: int = 1  # pods of that group that must run, and succeed unless `first` is set
    first: bool = False  # whether the success of that group's pod 0 suffices: it ends after the others
    min_nodes: int | None = None  # of an elastic world: the minimum number of nodes
    elastic: bool = False  # whether its pods are replaced one by one
    deadline: int | None = None  # seconds
    world_size: int | None = None  # planned ranks, if known
    ranks: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # group -> (first rank, ranks per pod)
    lost_after: float | None = None  # seconds after which to force-delete a lost node's pods; None: never
    ttl: float | None = None  # seconds from its end until stepset may delete it; None: never
    program: str = ""  # what the run executes
    labels: Mapping[str, str] = field(default_factory=dict)  # the job's labels
    namespace: str = ""
    verdict: RunStatus | None = None  # the end of the run, if stored in an annotation and confirmed by its controller
    unconfirmed: RunStatus | None = None  # the end of the run, if stored and not yet confirmed by its controller
    unreadable: tuple[str, ...] = ()  # its annotations that cannot be read


def read_workload(data: Fields) -> Workload | None:
    """Reads a workload; None for an object of another kind."""
    kind, group = text(data, "kind"), text(data, "apiVersion").partition("/")[0]
    read = _READERS.get((group, kind))
    if read is None:
        return None
    meta = part(data, "metadata")
    labels, notes = part(meta, "labels"), part(meta, "annotations")
    owner = controller_of(data)
    ranks = read_ranks(text(notes, RANKS))
    common = Workload(
        kind=kind,
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        owner=owner.uid,
        owner_kind=owner.kind,
        run=text(labels, RUN) or text(meta, "name"),
        job=text(labels, JOB),
        attempt=number(labels, _ATTEMPT),
        created=time_of(meta, "creationTimestamp") or 0.0,
        deletion_requested=time_of(meta, "deletionTimestamp"),
        queue=text(labels, QUEUE_LABEL),
        world_size=number(notes, WORLD_SIZE) or None,
        min_nodes=number(notes, MIN_NODES) or None,
        ranks=ranks or {},
        lost_after=seconds(text(notes, LOST_NODE_AFTER)),
        ttl=seconds(text(notes, TTL)),
        program=text(notes, PROGRAM),
        labels=_own_labels(labels),
        namespace=text(meta, "namespace"),
        unreadable=(RANKS,) if ranks is None else (),
    )
    return _with_verdict(read(common, part(data, "spec"), part(data, "status")), text(notes, VERDICT))


def verdict_of(data: Fields) -> RunStatus | None:
    """The stored end of a run; None if there is none, or if its controller does not confirm it."""
    workload = read_workload(data) if text(part(data, "metadata", "annotations"), VERDICT) else None
    return None if workload is None else workload.verdict


def _with_verdict(workload: Workload, stored: str) -> Workload:
    """Adds the stored verdict: confirmed if the workload has ended in the same way, unconfirmed if it has not ended.

    Suspension confirms a failure, because a run that was given up is suspended. After the request that stores a
    StatefulSet's verdict, a second request scales it to zero, which counts as suspension and confirms any verdict. This
    needs no further trust: a user who may write the annotation may also suspend the workload.
    """
    if not stored:
        return workload
    verdict = parse_verdict(stored)
    if verdict is None:
        return replace(workload, unreadable=(*workload.unreadable, VERDICT))
    verdict = described(verdict.with_ttl(workload.ttl), workload)
    if not (workload.ended or workload.suspended):
        return replace(workload, unconfirmed=verdict)
    success = verdict.phase is Phase.SUCCEEDED
    if workload.ended:
        agreed = success == (workload.ended == "Succeeded")
    else:
        agreed = not success or workload.kind == "StatefulSet"
    return replace(workload, verdict=verdict) if agreed else workload


def described(status: RunStatus, workload: Workload) -> RunStatus:
    """Returns a status with the properties of its run that the workload's metadata contains."""
    return status.with_(program=workload.program, labels=dict(workload.labels), namespace=workload.namespace)


def _own_labels(labels: Fields) -> dict[str, str]:
    """Returns the labels that neither stepset nor a controller has set."""
    return {
        key: value
        for key, value in labels.items()
        if isinstance(value, str) and not key.startswith(PREFIX) and "k8s.io/" not in key
    }


def combined(top: Workload, inner: Workload | None) -> Workload:
    """A TrainJob with the state of its JobSet, except for its end.

    The TrainJob copies the JobSet's end a moment later; until then the run is not over.
    """
    if inner is None:
        return top
    return replace(
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
    return replace(
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
    return replace(
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
    # FailureTarget is set when the failure is certain and pods are deleted; Failed when they have ended.
    verdict = by_type.get("FailureTarget", {})
    reason = text(verdict, "reason") if holds(verdict) else ""
    return replace(
        _with_end(replace(common, reason=reason), by_type, "Complete"),
        suspended=spec.get("suspend") is True,
        stopped=_since(by_type, "FailureTarget", "SuccessCriteriaMet", "Failed", "Complete", "Suspended"),
        resumed=_resumed(by_type, spec.get("suspend") is True),
        groups=groups,
        succeeded=_succeeded(status),
        **_world(spec, groups, NODE, common.min_nodes),
    )


def _statefulset(common: Workload, spec: Fields, status: Fields) -> Workload:
    count = number(spec, "replicas", 1)
    return replace(common, suspended=count == 0, groups={NODE: count}, needed=count, counted=number(status, "replicas"))


def _volcano(common: Workload, spec: Fields, status: Fields) -> Workload:
    state = part(status, "state")
    phase, at = text(state, "phase"), time_of(state, "lastTransitionTime")
    tasks = rows(spec, "tasks")
    groups = {text(row, "name"): number(row, "replicas", 1) for row in tasks}
    done = [row for row in tasks if any(rule.get("action") == "CompleteJob" for rule in rows(row, "policies"))]
    success = text(done[0], "name") if done else next(iter(groups), NODE)
    ends: dict[str, Ended] = {"Completed": "Succeeded", "Failed": "Failed", "Terminated": "Failed"}
    ended = ends.get(phase, "")
    moving = phase in ("Restarting", "Completing", "Terminating", "Aborting")
    return replace(
        common,
        enqueued=phase == "Pending",
        suspended=phase in ("Aborting", "Aborted"),
        ended=ended,
        at=at if ended else None,
        reason=text(state, "reason"),
        message=one_line(text(state, "message")),
        restarting=phase == "Restarting",
        attempt=number(status, "retryCount"),
        stopped=at if ended or moving or phase == "Aborted" else None,
        groups=groups,
        succeeded=number(status, "succeeded"),
        success=success,
        needed=groups.get(success, 1),
        deadline=next(filter(None, (_seconds(part(row, "template", "spec")) for row in tasks)), None),
    )


_READERS = {
    ("jobset.x-k8s.io", "JobSet"): _jobset,
    ("trainer.kubeflow.org", "TrainJob"): _trainjob,
    ("batch", "Job"): _job,
    ("apps", "StatefulSet"): _statefulset,
    ("batch.volcano.sh", "Job"): _volcano,
}


def _resumed(by_type: Mapping[str, Fields], suspended: bool) -> float | None:
    """When the last suspension ended; infinity until the controller reports its end.

    None if the run is suspended, or was never suspended.
    """
    found = by_type.get("Suspended")
    if found is None or suspended:
        return None
    return math.inf if holds(found) else time_of(found, "lastTransitionTime")


def _with_end(common: Workload, by_type: Mapping[str, Fields], success: str) -> Workload:
    """Adds the end; a failure takes precedence over a success, as in JobSet's controller."""
    ended: tuple[tuple[Ended, str], ...] = (("Failed", "Failed"), ("Succeeded", success))
    for state, name in ended:
        if holds(found := by_type.get(name, {})):
            at, reason = time_of(found, "lastTransitionTime"), text(found, "reason")
            return replace(common, ended=state, at=at, reason=reason, message=one_line(text(found, "message")))
    return common


def _world(job: Fields, groups: Mapping[str, int], success: str, min_nodes: int | None) -> dict[str, Any]:
    """How many pods the Job of the ranks needs, and whether they are replaced one by one."""
    rules = rows(part(job, "podFailurePolicy"), "rules")
    enough = next(iter(rows(part(job, "successPolicy"), "rules")), {})
    return {
        "success": success,
        # In a run of an earlier version, the success policy contains min_nodes as succeededCount.
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
    """The pods of a Job that its controller knows to have succeeded; some are not counted yet."""
    uncounted = part(status, "uncountedTerminatedPods").get("succeeded")
    return number(status, "succeeded") + (len(uncounted) if isinstance(uncounted, list) else 0)


def read_ranks(words: str) -> dict[str, tuple[int, int]] | None:
    """Reads the annotation with the ranks of each group's pods, a JSON object: group -> [first rank, ranks per pod].

    Returns None if it is invalid.
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


def is_job_of(jobset: Workload, job: Workload) -> bool:
    """Whether a Job belongs to a JobSet: the JobSet is its owner, and may have created a Job of this name and attempt.

    The watch of Jobs may be ahead of that of JobSets, by one restart.
    """
    if job.kind != "Job" or job.owner != jobset.uid or job.attempt > jobset.attempt + 1:
        return False
    prefix, _, index = job.name.rpartition("-")
    group = prefix.removeprefix(f"{jobset.name}-")
    return to_number(index, -1) in range(jobset.replicas.get(group, 0))


def is_pod_of(top: Workload, pod: Fields) -> bool:
    """Whether a workload may have created a pod of this name; always True unless the workload is a StatefulSet.

    The pods of a Job have random names.
    """
    if top.kind == "StatefulSet":
        name = text(part(pod, "metadata"), "name")
        return name.removeprefix(f"{top.name}-").isdecimal()
    return True
