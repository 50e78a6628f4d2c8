"""Reads the state of a run's top-level object, with one function per kind.

Sources: kubernetes-sigs/jobset v0.12.0 pkg/controllers; kubeflow/trainer v2.3.0 pkg/runtime/framework/plugins/jobset;
kubernetes v1.36 pkg/controller/job; volcano.sh/apis v1.13 batch/v1alpha1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stepset.plan.model import NODE
from stepset.targets.metadata import JOB, LOST_NODE_AFTER, QUEUE_LABEL, RANKS, RUN, WORLD_SIZE
from stepset.watch.cluster.unstructured import (
    Fields,
    conditions,
    holds,
    number,
    one_line,
    part,
    rows,
    text,
    time_of,
    to_number,
)
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.state import RunStatus

_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"  # a label of a JobSet's Jobs

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
    enqueued: bool = False  # whether its controller has a queue of its own and keeps it there
    ended: Ended = ""
    at: float | None = None  # when it ended
    reason: str = ""  # of its controller; for a Job, set as soon as its failure is certain
    message: str = ""  # of its controller
    restarting: bool = False  # whether its gang is being restarted
    attempt: int = 0  # gang restarts so far
    stopped: float | None = None  # when its controller started to delete its pods, for any reason
    resumed: float | None = None  # when its last suspension ended; pods deleted before are ignored
    groups: Mapping[str, int] = field(default_factory=dict)  # group -> planned pods
    success: str = NODE  # the group whose success is the run's
    needed: int = 1  # pods of that group that must run, and succeed
    elastic: bool = False  # whether its pods are replaced one by one
    deadline: int | None = None  # seconds
    world_size: int | None = None  # planned ranks, if known
    ranks: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # group -> (first rank, ranks per pod)
    lost_after: float | None = None  # seconds after which to force-delete a lost node's pods; None: never
    verdict: RunStatus | None = None  # the end of the run, if stored in an annotation


def read_workload(data: Fields) -> Workload | None:
    """Reads a workload; None for an object of another kind."""
    kind, group = text(data, "kind"), text(data, "apiVersion").partition("/")[0]
    read = _READERS.get((group, kind))
    if read is None:
        return None
    meta = part(data, "metadata")
    labels, notes = part(meta, "labels"), part(meta, "annotations")
    lost_after = text(notes, LOST_NODE_AFTER)
    owner = next((row for row in rows(meta, "ownerReferences") if row.get("controller") is True), {})
    common = Workload(
        kind=kind,
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        owner=text(owner, "uid"),
        owner_kind=text(owner, "kind"),
        run=text(labels, RUN) or text(meta, "name"),
        job=text(labels, JOB),
        attempt=number(labels, _ATTEMPT),
        created=time_of(meta, "creationTimestamp") or 0.0,
        deletion_requested=time_of(meta, "deletionTimestamp"),
        queue=text(labels, QUEUE_LABEL),
        world_size=number(notes, WORLD_SIZE) or None,
        ranks=read_ranks(text(notes, RANKS)),
        lost_after=float(lost_after) if lost_after.replace(".", "", 1).isdecimal() else None,
        verdict=verdict_of(data),
    )
    return read(common, part(data, "spec"), part(data, "status"))


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
        success=inner.success,
        needed=inner.needed,
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
    success = targets[0] if isinstance(targets, list) and targets and targets[0] in jobs else next(iter(groups), NODE)
    return replace(
        _with_end(common, by_type, "Completed"),
        suspended=spec.get("suspend") is True,
        restarting=holds(by_type.get("RestartingJobSet")),
        attempt=number(status, "restarts"),
        stopped=_since(by_type, "Failed", "Completed", "Suspended"),
        resumed=_resumed(by_type, spec.get("suspend") is True),
        groups=groups,
        **_world(jobs.get(success, {}), groups, success),
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
        **_world(spec, groups, NODE),
    )


def _statefulset(common: Workload, spec: Fields, status: Fields) -> Workload:
    count = number(spec, "replicas", 1)
    return replace(common, suspended=count == 0, groups={NODE: count}, needed=count)


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
    """When the last suspension ended; infinity until the controller has observed that."""
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


def _world(job: Fields, groups: Mapping[str, int], success: str) -> dict[str, Any]:
    """How many pods the Job of the ranks needs, and whether they are replaced one by one."""
    rules = rows(part(job, "podFailurePolicy"), "rules")
    enough = next(iter(rows(part(job, "successPolicy"), "rules")), {})
    return {
        "success": success,
        "needed": number(enough, "succeededCount", groups.get(success, 1)),
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


def read_ranks(words: str) -> dict[str, tuple[int, int]]:
    """Reads the annotation with the ranks of each group's pods, a JSON object: group -> [first rank, ranks per pod]."""
    try:
        found = json.loads(words) if words else None
    except (ValueError, RecursionError):
        return {}
    return {
        group: (to_number(pair[0]), to_number(pair[1]))
        for group, pair in (found.items() if isinstance(found, dict) else ())
        if isinstance(pair, list) and len(pair) == 2
    }
