"""What the object on top says of a run, whatever kind it is: one function per kind, one answer.

Called by RunObjects. Sources: kubernetes-sigs/jobset v0.12.0 pkg/controllers; kubeflow/trainer v2.3.0
pkg/runtime/framework/plugins/jobset; kubernetes v1.36 pkg/controller/job; volcano.sh/apis v1.13 batch/v1alpha1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stepset.plan.model import NODE
from stepset.targets.identity import JOB, LOST_NODE_AFTER, QUEUE_LABEL, RANKS, RUN, WORLD_SIZE
from stepset.watch.cluster.fields import (
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

_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
"""On a JobSet's Jobs."""

Ended = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class Workload:
    """The object on top of a run. Times are seconds since the epoch.

    Args:
        kind, name, uid: its identity.
        owner, owner_kind: uid and kind of what made it, if something did.
        run, job: the names of the run and of its job.
        created: when it was made.
        deleted: when somebody asked for its deletion.
        suspended: nothing is to run.
        queue: the queue it stands in, where that lets it start by ending its suspension.
        enqueued: its controller keeps it in a queue of its own.
        ended, at: whether and when it ended.
        reason, message: why, in its controller's words; a Job has a reason as soon as it is about to fail.
        restarting: its gang is being started again.
        attempt: gang restarts so far.
        stopped: when its controller began to end its pods, for whatever reason.
        resumed: when its last suspension ended: pods that were told to go before that belong to the past.
        groups: group -> pods there are to be.
        success: the group whose success is the run's.
        needed: how many of that group must run, and succeed.
        elastic: pods are replaced one by one.
        deadline: seconds it may take.
        world_size: ranks there are to be, where known.
        ranks: group -> (first rank, ranks per pod).
        lost_after: seconds after which pods of a lost node are to be released, where the job says so.
        verdict: how the run ended, where that was written onto it.
    """

    kind: str
    name: str
    uid: str
    owner: str = ""
    owner_kind: str = ""
    run: str = ""
    job: str = ""
    created: float = 0.0
    deleted: float | None = None
    suspended: bool = False
    queue: str = ""
    enqueued: bool = False
    ended: Ended = ""
    at: float | None = None
    reason: str = ""
    message: str = ""
    restarting: bool = False
    attempt: int = 0
    stopped: float | None = None
    resumed: float | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    success: str = NODE
    needed: int = 1
    elastic: bool = False
    deadline: int | None = None
    world_size: int | None = None
    ranks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lost_after: float | None = None
    verdict: RunStatus | None = None


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
        deleted=time_of(meta, "deletionTimestamp"),
        queue=text(labels, QUEUE_LABEL),
        world_size=number(notes, WORLD_SIZE) or None,
        ranks=read_ranks(text(notes, RANKS)),
        lost_after=float(lost_after) if lost_after.replace(".", "", 1).isdecimal() else None,
        verdict=verdict_of(data),
    )
    return read(common, part(data, "spec"), part(data, "status"))


def combined(top: Workload, inner: Workload | None) -> Workload:
    """A TrainJob with the JobSet behind it: how it ended is the TrainJob's to say, the rest the JobSet's.

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
    told = conditions(status)
    groups: dict[str, int] = {}
    jobs: dict[str, Fields] = {}
    for row in rows(spec, "replicatedJobs"):
        job = part(row, "template", "spec")
        jobs[text(row, "name")] = job
        groups[text(row, "name")] = number(row, "replicas", 1) * number(job, "parallelism", 1)
    targets = part(spec, "successPolicy").get("targetReplicatedJobs")
    success = targets[0] if isinstance(targets, list) and targets and targets[0] in jobs else next(iter(groups), NODE)
    return replace(
        _with_end(common, told, "Completed"),
        suspended=spec.get("suspend") is True,
        restarting=holds(told.get("RestartingJobSet")),
        attempt=number(status, "restarts"),
        stopped=_since(told, "Failed", "Completed", "Suspended"),
        resumed=_resumed(told, spec.get("suspend") is True),
        groups=groups,
        **_world(jobs.get(success, {}), groups, success),
    )


def _trainjob(common: Workload, spec: Fields, status: Fields) -> Workload:
    told = conditions(status)
    nodes = number(part(spec, "trainer"), "numNodes", 1)
    return replace(
        _with_end(common, told, "Complete"),
        suspended=spec.get("suspend") is True,
        stopped=_since(told, "Failed", "Complete", "Suspended"),
        groups={NODE: nodes},
        needed=nodes,
        deadline=_seconds(spec),
    )


def _job(common: Workload, spec: Fields, status: Fields) -> Workload:
    told = conditions(status)
    groups = {NODE: number(spec, "parallelism", 1)}
    # Pods are told to end when the verdict is clear, and the verdict is given when they have ended.
    verdict = told.get("FailureTarget", {})
    reason = text(verdict, "reason") if holds(verdict) else ""
    return replace(
        _with_end(replace(common, reason=reason), told, "Complete"),
        suspended=spec.get("suspend") is True,
        stopped=_since(told, "FailureTarget", "SuccessCriteriaMet", "Failed", "Complete", "Suspended"),
        resumed=_resumed(told, spec.get("suspend") is True),
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
    ended: Ended = ""
    if phase == "Completed":
        ended = "Succeeded"
    elif phase in ("Failed", "Terminated"):
        ended = "Failed"
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


def _resumed(told: Mapping[str, Fields], suspended: bool) -> float | None:
    """When the last suspension ended; endlessly late while its controller has not taken note of that yet."""
    found = told.get("Suspended")
    if found is None or suspended:
        return None
    return math.inf if holds(found) else time_of(found, "lastTransitionTime")


def _with_end(common: Workload, told: Mapping[str, Fields], success: str) -> Workload:
    """With how it ended; a failure comes before a success, as JobSet's own controller has it."""
    ended: tuple[tuple[Ended, str], ...] = (("Failed", "Failed"), ("Succeeded", success))
    for state, name in ended:
        found = told.get(name)
        if found is not None and holds(found):
            return replace(
                common,
                ended=state,
                at=time_of(found, "lastTransitionTime"),
                reason=text(found, "reason"),
                message=one_line(text(found, "message")),
            )
    return common


def _world(job: Fields, groups: Mapping[str, int], success: str) -> dict[str, Any]:
    """What the Job that holds the world says: how many pods of it are needed, and whether they are replaced singly."""
    rules = rows(part(job, "podFailurePolicy"), "rules")
    enough = next(iter(rows(part(job, "successPolicy"), "rules")), {})
    return {
        "success": success,
        "needed": number(enough, "succeededCount", groups.get(success, 1)),
        # targets/failure.py: only an elastic world's Job ignores disruptions.
        "elastic": any(rule.get("action") == "Ignore" for rule in rules),
        "deadline": _seconds(job),
    }


def _seconds(spec: Fields) -> int | None:
    return to_number(spec.get("activeDeadlineSeconds")) or None


def _since(told: Mapping[str, Fields], *names: str) -> float | None:
    return _earliest(*(time_of(told[name], "lastTransitionTime") for name in names if holds(told.get(name))))


def _earliest(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)


def read_ranks(words: str) -> dict[str, tuple[int, int]]:
    """Reads the annotation that states which ranks the pods of each group hold.

    Args:
        words: its value, JSON: group -> [first rank, ranks per pod].
    """
    try:
        found = json.loads(words) if words else None
    except (ValueError, RecursionError):
        return {}
    return {
        group: (to_number(pair[0]), to_number(pair[1]))
        for group, pair in (found.items() if isinstance(found, dict) else ())
        if isinstance(pair, list) and len(pair) == 2
    }
