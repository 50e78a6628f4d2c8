"""What keeps a run from going on: no room, no image, no Secret, a quota, a webhook, a lost node.

Called by status.py for runs that are not over, by keeper.py, and by whoever releases the pods of lost nodes. Trouble is
no failure: quotas are freed and nodes come. Whoever waits has patience, and gives up when that is at an end; sooner
where only somebody, or nobody, can mend what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stepset.watch.cluster.events import REFUSED, Event
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod, Wait
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import ADVICE
from stepset.watch.present.sentences import queue_sentence
from stepset.watch.state import Failure, FailureKind, Waiting

OVERDUE = 10.0
"""Seconds after which a pod that should be gone counts as lost with its node: a kubelet that lives takes less."""
PULLING_AFTER = 3.0
"""Seconds after which a container that lacks nothing else counts as waiting for its image."""
UNQUEUED = 60.0
"""Seconds a suspended run may be without a place in the queue it names."""
BY_SOMEBODY = 120.0
"""Seconds for somebody to mend what the cluster does not mend by itself: to make a missing Secret, to lift a rule. The
kubelet tries a volume again after two minutes at the latest (pkg/util/goroutinemap/exponentialbackoff)."""
BY_NOBODY = 0.0
"""Seconds for what cannot be mended, because it is said in the pods themselves."""
STUBBORN = 60.0
"""Seconds for which what passes by itself must come back to be trouble."""

QUEUED, UNSCHEDULABLE, PULLING, STARTING, NODE_LOST = "Queued", "Unschedulable", "PullingImage", "Starting", "NodeLost"

# No try can have it: the name is none, or nobody is to pull what is not there.
_NO_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
_CONFIG = ("CreateContainerConfigError",)
_MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = ("FailedCreatePodSandBox", "FailedCreatePodContainer")

# What the kubelet says of an image that the pod's own security context forbids to run.
_FORBIDDEN = re.compile(r"runAsNonRoot|runAsUser")
# Something that the pods name is not there, in the words of kubelet and API server.
_MISSING = re.compile(
    r'\b(secret|configmap|persistentvolumeclaim)s? "[^"]*" not found|references non-existent (secret|config) key'
    r"|couldn't find key"
)
# A kubelet that has just heard of a pod, and does not know yet what the pod names.
_NOT_YET = re.compile(r"failed to sync \w+ cache|object \S+ not registered")
# Somebody who is asked before things are made does not answer, or the server itself is in trouble.
_NO_ANSWER = re.compile(r"failed calling webhook|[Ii]nternal error|[Tt]imed? ?out|etcdserver|connection refused")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a run from going on.

    Args:
        reason: Queued, Unschedulable, PullingImage, Starting or NodeLost.
        failure: what the run's failure would be if it were given up now.
        serious: it is more than the time things take.
        patience: seconds that nobody waits longer for it to be over; None: it may be over at any time.
        waiting: the run's place in a queue, where that is what it waits for.
    """

    reason: str
    failure: Failure
    serious: bool = True
    patience: float | None = None
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True)
class LostPod:
    """A pod that should be gone and is not, because its node does not answer.

    Args:
        name, uid, node: the pod.
        since: when it should have been gone, in seconds since the epoch.
        due: it is to be released: the job says so, and the time it gives the node is over.
    """

    name: str
    uid: str
    node: str
    since: float
    due: bool


def lost_pods(objects: RunObjects, now: float) -> list[LostPod]:
    """Pods whose deletion is overdue, of all attempts: a new one waits until the old pods are gone.

    Neither Job nor JobSet say so: they wait.

    Args:
        objects: the run's.
        now: seconds since the epoch.
    """
    workload = objects.workload
    after = workload.lost_after if workload is not None else None
    return [
        LostPod(pod.name, pod.uid, pod.node, pod.due, after is not None and now >= pod.due + after)
        for pod in objects.leaving()
        # Of one that has ended its node has told, and so it lives.
        if pod.due is not None and now > pod.due + OVERDUE and not pod.over
    ]


def trouble_of(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Trouble | None:
    """The worst that keeps a run from going on, if anything does.

    Args:
        objects: the run's.
        workload: what stands on top of it.
        pods: of the present attempt.
        now: seconds since the epoch.
    """
    if workload.suspended:
        return _queue(objects, workload, now)
    return next(_troubles(objects, workload, pods, now), None)


def _troubles(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """The worst first."""
    yield from _nodes(objects, workload, pods, now)
    waiting = [pod for pod in pods if not pod.over and not pod.running]
    yield from _waits(waiting)
    yield from _not_made(objects, workload, pods)
    yield from _mounts(objects, waiting)
    yield from _no_room(objects, waiting)
    gated = [pod for pod in waiting if pod.gated]
    if gated:
        place = _place(objects, workload)
        words = place.message if place is not None else ""
        text = f"{_names(gated)} {_waits_word(gated)} to be let start" + (f": {words}" if words else ".")
        yield replace(_trouble(QUEUED, FailureKind.UNSCHEDULABLE, text, gated[0]), waiting=place)
    yield from _pulling(waiting, now)


def _nodes(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    lost = lost_pods(objects, now)
    if lost:
        first = min(lost, key=lambda pod: (pod.since, pod.name))
        text = f"node {first.node} is lost, and nothing goes on until its pod {first.name} is gone; {_remedy(workload)}"
        yield Trouble(NODE_LOST, _failure(FailureKind.INFRASTRUCTURE, text, pod=first.name, node=first.node))
    silent = [pod for pod in pods if pod.silent and not pod.over]
    if silent:
        text = f"node {silent[0].node} does not answer; {_names(silent)} may be lost."
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, silent[0])


def _remedy(workload: Workload) -> str:
    if workload.lost_after is not None:
        return f"it is released {workload.lost_after:.0f} s after it should have been"
    return "mend the node, or give it the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def _waits(waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """What the kubelet says of containers that do not start, what cannot be mended first."""
    waits = [(pod, pod.wait) for pod in waiting if pod.wait is not None]
    for reasons, words, reason in (
        (_NO_IMAGE, "cannot have the image", PULLING),
        (_IMAGE, "cannot have the image", PULLING),
        (_CONFIG, "cannot be started", STARTING),
        (_OTHER_WAITS, "cannot be started", STARTING),
    ):
        found = [(pod, wait) for pod, wait in waits if wait.reason in reasons]
        if found:
            wait = _most_telling([wait for _, wait in found])
            kind, patience = _outlook(wait)
            said = f"{words}: {wait.reason}: {wait.message}" if wait.message else f"{words}: {wait.reason}"
            text = f"{_names([pod for pod, _ in found])} {said}"
            yield replace(
                _trouble(reason, kind, text, found[0][0]),
                patience=patience,
                serious=_NOT_YET.search(wait.message) is None,
            )


_OTHER_WAITS = ("CreateContainerError", "RunContainerError", "PostStartHookError")


def _outlook(wait: Wait) -> tuple[FailureKind, float | None]:
    """What a wait would have failed of, and how long it may last."""
    if wait.reason in _NO_IMAGE:
        return FailureKind.IMAGE_PULL, BY_NOBODY
    if wait.reason in _IMAGE:
        return FailureKind.IMAGE_PULL, None
    if wait.reason in _CONFIG and _FORBIDDEN.search(wait.message):
        return FailureKind.REJECTED, BY_NOBODY
    if wait.reason in _CONFIG and _MISSING.search(wait.message):
        return FailureKind.REJECTED, BY_SOMEBODY
    return FailureKind.INFRASTRUCTURE, None


def _most_telling(waits: Sequence[Wait]) -> Wait:
    """The kubelet's own words at the first try say more than its words while it waits for the next."""
    return max(waits, key=lambda wait: (not wait.reason.endswith("BackOff"), len(wait.message)))


def _not_made(objects: RunObjects, workload: Workload, pods: Sequence[Pod]) -> Iterator[Trouble]:
    """Pods, Jobs or JobSets that somebody refuses: said by events alone."""
    if len(pods) >= sum(workload.groups.values()) > 0:
        return
    refused = [event for event in objects.events.of(REFUSED) if not _made_after_all(event, objects, pods)]
    if refused:
        event = refused[-1]
        quota = "quota" in event.message
        text = f"{event.kind} {event.name} cannot make what it needs: {event.message}"
        if quota:
            yield Trouble(UNSCHEDULABLE, _failure(FailureKind.UNSCHEDULABLE, text))
        elif _NO_ANSWER.search(event.message):
            yield Trouble(STARTING, _failure(FailureKind.INFRASTRUCTURE, text))
        else:
            yield Trouble(STARTING, _failure(FailureKind.REJECTED, text), patience=BY_SOMEBODY)


def _made_after_all(event: Event, objects: RunObjects, pods: Sequence[Pod]) -> bool:
    """Whether what was refused once is there now. Objects tell when they were made in whole seconds."""
    jobs = {job.name: job for job in objects.jobs}
    if event.kind == "Job" and event.name in jobs:
        own = [pod for pod in pods if pod.job == event.name]
        return len(own) >= sum(jobs[event.name].groups.values()) or last_made(own) > event.last
    if event.kind in ("JobSet", "TrainJob"):
        jobs_made = max((job.created for job in jobs.values()), default=0.0)
        return max(jobs_made, last_made(pods)) > event.last - 1.0
    return last_made(pods) > event.last


def last_made(pods: Sequence[Pod]) -> float:
    """When the last pod was made."""
    return max((pod.created for pod in pods), default=0.0)


def _mounts(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """Volumes and networks that cannot be had: said by events alone, until they are there."""
    by_uid = {pod.uid: pod for pod in waiting if pod.scheduled is not None and pod.housed is None}
    if not by_uid:
        return
    for reasons in (_MOUNT, _SANDBOX):
        found = [event for event in objects.events.of(reasons) if event.about in by_uid and not _passes(event)]
        if found:
            pod = by_uid[found[-1].about]
            affected = [by_uid[uid] for uid in dict.fromkeys(event.about for event in found)]
            text = f"{_names([pod, *(each for each in affected if each is not pod)])} cannot be started: "
            missing = _MISSING.search(found[-1].message) is not None
            kind = FailureKind.REJECTED if missing else FailureKind.INFRASTRUCTURE
            trouble = _trouble(STARTING, kind, text + found[-1].message, pod)
            yield replace(trouble, patience=BY_SOMEBODY if missing else None)


def _passes(event: Event) -> bool:
    """Whether it says no more than that the kubelet does not know everything yet."""
    return _NOT_YET.search(event.message) is not None and event.last - event.first < STUBBORN


def _no_room(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    without = [pod for pod in waiting if pod.unschedulable]
    if without:
        text = f"no room for {_names(without)}: {without[0].unschedulable}"
        missing = _MISSING.search(without[0].unschedulable) is not None
        trouble = _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text, without[0])
        yield replace(trouble, patience=BY_SOMEBODY if missing else None)


def _pulling(waiting: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """An image that is on its way is no trouble, but says why the run does not start.

    The kubelet tells it by an event that is no warning, so by what is left: all else a container needs is there.
    """
    pulling = [pod for pod in waiting if pod.wait is not None and now - (pod.housed or now) > PULLING_AFTER]
    if pulling:
        text = f"{_names(pulling)} {_waits_word(pulling)} for the image."
        yield replace(_trouble(PULLING, FailureKind.IMAGE_PULL, text, pulling[0]), serious=False)


def _queue(objects: RunObjects, workload: Workload, now: float) -> Trouble | None:
    """Where a suspended run stands in a queue."""
    place = _place(objects, workload)
    if place is not None:
        return Trouble(QUEUED, _failure(FailureKind.UNSCHEDULABLE, queue_sentence(place)), waiting=place)
    if workload.queue and not objects.tickets and now - workload.created > UNQUEUED:
        text = (
            f"the run is suspended and has no place in queue {workload.queue}: see whether the queue exists, and"
            f" whether Kueue handles {workload.kind}s here."
        )
        return Trouble(QUEUED, _failure(FailureKind.UNSCHEDULABLE, text))
    return None


def _place(objects: RunObjects, workload: Workload) -> Waiting | None:
    """The run's place in a queue of Kueue's that has not admitted it."""
    ticket = objects.queued
    return None if ticket is None else ticket.waiting(workload.queue, objects.position)


def _trouble(reason: str, kind: FailureKind, text: str, pod: Pod) -> Trouble:
    return Trouble(reason, _failure(kind, text, pod=pod.name, node=pod.node))


def _failure(kind: FailureKind, text: str, pod: str = "", node: str = "") -> Failure:
    return Failure(kind=kind, message=text, advice=ADVICE[kind], pod=pod, node=node)


def _names(pods: Sequence[Pod]) -> str:
    """Some pods in words: the first by name, the others by number."""
    first = f"pod {pods[0].name}" + (f" on {pods[0].node}" if pods[0].node else "")
    return first + (f" and {len(pods) - 1} more" if len(pods) > 1 else "")


def _waits_word(pods: Sequence[Pod]) -> str:
    return "wait" if len(pods) > 1 else "waits"


def _what(event: Event) -> str:
    return f"{event.kind} {event.name}"
