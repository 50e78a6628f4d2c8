"""Problems that keep a run from making progress: no room, no image, no Secret, a quota, a webhook, a lost node.

Trouble is no failure: quotas are freed and nodes return. A waiting caller gives up at its time limit, and earlier where
the problem does not resolve itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stepset.watch.cluster.events import REFUSED, Event
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod, Wait
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import make_failure
from stepset.watch.present.sentences import queue_sentence
from stepset.watch.state import Failure, FailureKind, Waiting

OVERDUE = 10.0
"""Seconds after which a pod that should be gone counts as lost with its node: a live kubelet takes less."""
PULLING_AFTER = 3.0
"""Seconds after which a container that lacks nothing else counts as waiting for its image."""
UNQUEUED = 60.0
"""Seconds a suspended run may be without a place in the queue it names."""
BY_SOMEBODY = 120.0
"""Seconds for a user to fix what the cluster does not: to create a missing Secret, to change a policy. The kubelet
retries a volume after two minutes at the latest (pkg/util/goroutinemap/exponentialbackoff)."""
BY_NOBODY = 0.0
"""Seconds for what cannot be fixed, because it is in the pods themselves."""
STUBBORN = 60.0
"""Seconds for which a transient problem must recur to be trouble."""

QUEUED, UNSCHEDULABLE, PULLING, STARTING, NODE_LOST = "Queued", "Unschedulable", "PullingImage", "Starting", "NodeLost"

# No attempt can succeed: the name is invalid, or an absent image must not be pulled.
_NO_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed")
_CONFIG = ("CreateContainerConfigError",)
_OTHER_WAITS = ("CreateContainerError", "RunContainerError", "PostStartHookError")
_MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = ("FailedCreatePodSandBox", "FailedCreatePodContainer")

# The kubelet's messages about an image that the pod's own security context forbids.
_FORBIDDEN = re.compile(r"runAsNonRoot|runAsUser")
# Messages of kubelet and API server about a missing object.
_MISSING = re.compile(
    r'\b(secret|configmap|persistentvolumeclaim)s? "[^"]*" not found|references non-existent (secret|config) key'
    r"|couldn't find key"
)
# A kubelet that has not read the objects of a new pod yet.
_NOT_YET = re.compile(r"failed to sync \w+ cache|object \S+ not registered")
# An admission webhook does not answer, or the server has problems.
_NO_ANSWER = re.compile(r"failed calling webhook|[Ii]nternal error|[Tt]imed? ?out|etcdserver|connection refused")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that keeps a run from making progress."""

    reason: str  # Queued, Unschedulable, PullingImage, Starting or NodeLost
    failure: Failure  # the run's failure if it were given up now
    serious: bool = True  # it takes longer than usual
    patience: float | None = None  # seconds to wait at most; None: it may resolve itself at any time
    waiting: Waiting | None = None  # the run's place in a queue, if it waits for that


@dataclass(frozen=True, slots=True)
class LostPod:
    """A pod that should be gone and is not, because its node does not answer."""

    name: str
    uid: str
    node: str
    since: float  # when it should have been gone, in seconds since the epoch
    due: bool  # to be deleted by force: the job requires it, and its time limit has passed


def lost_pods(objects: RunObjects, now: float) -> list[LostPod]:
    """Pods of all attempts whose deletion is overdue: a new attempt waits until the old pods are gone.

    Neither Job nor JobSet reports this: they wait. `now` is in seconds since the epoch.
    """
    workload = objects.workload
    after = workload.lost_after if workload is not None else None
    return [
        LostPod(pod.name, pod.uid, pod.node, pod.due, after is not None and now >= pod.due + after)
        for pod in objects.leaving()
        # The node of a pod that is known to have ended is alive.
        if pod.due is not None and now > pod.due + OVERDUE and not pod.over
    ]


def trouble_of(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Trouble | None:
    """The worst problem that keeps a run from making progress, if any; `now` is in seconds since the epoch."""
    if workload.suspended:
        return _queue(objects, workload, now)
    return next(_troubles(objects, workload, pods, now), None)


def _troubles(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """All problems, the worst first."""
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
        yield _trouble(QUEUED, FailureKind.UNSCHEDULABLE, text, gated[0], waiting=place)
    yield from _pulling(waiting, now)


def _nodes(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    lost = lost_pods(objects, now)
    if lost:
        first = min(lost, key=lambda pod: (pod.since, pod.name))
        text = f"node {first.node} is lost, and nothing goes on until its pod {first.name} is gone; {_remedy(workload)}"
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, first)
    silent = [pod for pod in pods if pod.silent and not pod.over]
    if silent:
        text = f"node {silent[0].node} does not answer; {_names(silent)} may be lost."
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, silent[0])


def _remedy(workload: Workload) -> str:
    if workload.lost_after is not None:
        return f"it is released {workload.lost_after:.0f} s after it should have been"
    return "mend the node, or give it the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def _waits(waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """What the kubelet reports of containers that do not start; permanent problems first."""
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
            serious = _NOT_YET.search(wait.message) is None
            yield _trouble(reason, kind, text, found[0][0], patience=patience, serious=serious)


def _outlook(wait: Wait) -> tuple[FailureKind, float | None]:
    """The failure kind of a wait, and the seconds it may last."""
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
    """The kubelet's first message has more details than its messages during the back-off."""
    return max(waits, key=lambda wait: (not wait.reason.endswith("BackOff"), len(wait.message)))


def _not_made(objects: RunObjects, workload: Workload, pods: Sequence[Pod]) -> Iterator[Trouble]:
    """Refused pods, Jobs or JobSets: reported by events only."""
    if len(pods) >= sum(workload.groups.values()) > 0:
        return
    refused = [event for event in objects.events.of(REFUSED) if not _made_after_all(event, objects, pods)]
    if refused:
        event = refused[-1]
        text = f"{event.kind} {event.name} cannot make what it needs: {event.message}"
        if "quota" in event.message:
            yield _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text)
        elif _NO_ANSWER.search(event.message):
            yield _trouble(STARTING, FailureKind.INFRASTRUCTURE, text)
        else:
            yield _trouble(STARTING, FailureKind.REJECTED, text, patience=BY_SOMEBODY)


def _made_after_all(event: Event, objects: RunObjects, pods: Sequence[Pod]) -> bool:
    """Whether a refused object exists now. Creation times are whole seconds."""
    jobs = {job.name: job for job in objects.jobs}
    if event.kind == "Job" and event.name in jobs:
        own = [pod for pod in pods if pod.job == event.name]
        return len(own) >= sum(jobs[event.name].groups.values()) or last_made(own) > event.last
    if event.kind in ("JobSet", "TrainJob"):
        jobs_made = max((job.created for job in jobs.values()), default=0.0)
        return max(jobs_made, last_made(pods)) > event.last - 1.0
    return last_made(pods) > event.last


def last_made(pods: Sequence[Pod]) -> float:
    """When the newest pod was created; 0 without pods."""
    return max((pod.created for pod in pods), default=0.0)


def _mounts(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """Unavailable volumes and networks: reported by events only, until they are available."""
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
            patience = BY_SOMEBODY if missing else None
            yield _trouble(STARTING, kind, text + found[-1].message, pod, patience=patience)


def _passes(event: Event) -> bool:
    """Whether the event only shows that the kubelet's caches are not filled yet."""
    return _NOT_YET.search(event.message) is not None and event.last - event.first < STUBBORN


def _no_room(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    without = [pod for pod in waiting if pod.unschedulable]
    if without:
        text = f"no room for {_names(without)}: {without[0].unschedulable}"
        patience = BY_SOMEBODY if _MISSING.search(without[0].unschedulable) else None
        yield _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text, without[0], patience=patience)


def _pulling(waiting: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """An image that is being pulled: no problem, but the reason why the run does not start.

    The kubelet reports it with an event that is no warning; here it is concluded: a container lacks nothing else.
    """
    pulling = [pod for pod in waiting if pod.wait is not None and now - (pod.housed or now) > PULLING_AFTER]
    if pulling:
        text = f"{_names(pulling)} {_waits_word(pulling)} for the image."
        yield _trouble(PULLING, FailureKind.IMAGE_PULL, text, pulling[0], serious=False)


def _queue(objects: RunObjects, workload: Workload, now: float) -> Trouble | None:
    """Where a suspended run stands in a queue."""
    place = _place(objects, workload)
    if place is not None:
        return _trouble(QUEUED, FailureKind.UNSCHEDULABLE, queue_sentence(place), waiting=place)
    if workload.queue and not objects.tickets and now - workload.created > UNQUEUED:
        text = (
            f"the run is suspended and has no place in queue {workload.queue}: see whether the queue exists, and"
            f" whether Kueue handles {workload.kind}s here."
        )
        return _trouble(QUEUED, FailureKind.UNSCHEDULABLE, text)
    return None


def _place(objects: RunObjects, workload: Workload) -> Waiting | None:
    """The run's place in a Kueue queue that has not admitted it."""
    ticket = objects.queued
    return None if ticket is None else ticket.waiting(workload.queue, objects.position)


def _trouble(reason: str, kind: FailureKind, text: str, pod: Pod | LostPod | None = None, **more: Any) -> Trouble:
    place = {} if pod is None else {"pod": pod.name, "node": pod.node}
    return Trouble(reason, make_failure(kind, text, **place), **more)


def _names(pods: Sequence[Pod]) -> str:
    """Some pods as text: the name of the first, the number of the others."""
    first = f"pod {pods[0].name}" + (f" on {pods[0].node}" if pods[0].node else "")
    return first + (f" and {len(pods) - 1} more" if len(pods) > 1 else "")


def _waits_word(pods: Sequence[Pod]) -> str:
    return "wait" if len(pods) > 1 else "waits"
