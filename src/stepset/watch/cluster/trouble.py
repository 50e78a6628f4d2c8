"""Problems that keep a run from making progress: no room, no image, no Secret, a quota, a webhook, a lost node.

Trouble is not a failure: quotas are freed and nodes return. A waiting caller gives up at its time limit, or earlier if
the problem does not resolve itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stepset.run_status import Failure, FailureKind, Waiting
from stepset.targets.names import CONTAINER
from stepset.targets.pods.security import LACKS_RESTRICTED, REMEDY
from stepset.watch.cluster.events import REFUSED, Event
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod, Wait
from stepset.watch.cluster.workload import Workload
from stepset.watch.diagnose import make_failure
from stepset.watch.present.sentences import queue_sentence

OVERDUE = 10.0
"""Seconds by which a pod's deletion must be overdue for its node to count as lost; a live kubelet takes less."""
PULLING_AFTER = 3.0
"""Seconds after which a container that waits for nothing else counts as waiting for its image."""
UNQUEUED = 60.0
"""Seconds for which a suspended run may be missing from the queue that it names."""
FIX_BY_USER = 120.0
"""Seconds for a user to fix a problem that does not resolve itself: to create a missing Secret, to change a policy. The
kubelet retries a volume after two minutes at the latest (pkg/util/goroutinemap/exponentialbackoff)."""
NO_FIX = 0.0
"""Seconds to wait for problems that cannot be fixed because they are in the pods themselves."""
TRANSIENT_FOR = 60.0
"""Seconds for which a transient problem may recur before it is trouble."""

QUEUED, UNSCHEDULABLE, PULLING, STARTING, NODE_LOST = "Queued", "Unschedulable", "PullingImage", "Starting", "NodeLost"

# No attempt can succeed: the name is invalid, or the image is absent and must not be pulled.
_NO_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed")
_CONFIG = ("CreateContainerConfigError",)
_OTHER_WAITS = ("CreateContainerError", "RunContainerError", "PostStartHookError")
_ENDS_AGAIN = ("CrashLoopBackOff",)
_MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = ("FailedCreatePodSandBox", "FailedCreatePodContainer")

# The kubelet's messages about an image that the pod's own security context forbids.
_FORBIDDEN = re.compile(r"runAsNonRoot|runAsUser")
_OTHER_USER = "use an image whose USER is a number other than 0, or set securityContext.runAsUser in pod_template"
# Messages of kubelet and API server about a missing object.
_MISSING = re.compile(
    r'\b(secret|configmap|persistentvolumeclaim)s? "[^"]*" not found|references non-existent (secret|config) key'
    r"|couldn't find key"
)
# The kubelet has not read the objects of a new pod yet.
_CACHE_NOT_FILLED = re.compile(r"failed to sync \w+ cache|object \S+ not registered")
# An admission webhook does not answer, or the server has problems.
_NO_ANSWER = re.compile(r"failed calling webhook|[Ii]nternal error|[Tt]imed? ?out|etcdserver|connection refused")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that keeps a run from making progress."""

    reason: str  # Queued, Unschedulable, PullingImage, Starting or NodeLost
    failure: Failure  # the run's failure if it were given up now
    serious: bool = True  # False for a normal, short wait
    wait_limit: float | None = None  # most seconds to wait; None: it may resolve itself at any time
    waiting: Waiting | None = None  # the run's place in a queue, if it waits for that


@dataclass(frozen=True, slots=True)
class LostPod:
    """A pod whose deletion is overdue because its node does not answer."""

    name: str
    uid: str
    node: str
    since: float  # when its deletion was due, in seconds since the epoch
    release: bool  # whether to force-delete it: the job requires this, and `lost_node_after` has passed


def lost_pods(objects: RunObjects, now: float) -> list[LostPod]:
    """Pods of all attempts whose deletion is overdue. A new attempt waits until the old pods are deleted.

    Neither Job nor JobSet reports this. `now` is in seconds since the epoch.
    """
    workload = objects.workload
    after = workload.lost_after if workload is not None else None
    return [
        LostPod(pod.name, pod.uid, pod.node, pod.due, after is not None and now >= pod.due + after)
        for pod in objects.terminating()
        # If the pod is known to have ended, its node is alive.
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
    yield from _not_created(objects, workload, pods)
    yield from _mounts(objects, waiting)
    yield from _no_room(objects, waiting)
    gated = [pod for pod in waiting if pod.gated]
    if gated:
        place = _place(objects, workload)
        words = place.message if place is not None else ""
        text = f"{_names(gated)} {_waits_word(gated)} for the removal of scheduling gates"
        text += f": {words}" if words else "."
        yield _trouble(QUEUED, FailureKind.UNSCHEDULABLE, text, gated[0], waiting=place)
    yield from _pulling(waiting, now)


def _nodes(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    lost = lost_pods(objects, now)
    if lost:
        first = min(lost, key=lambda pod: (pod.since, pod.name))
        what = f"node {first.node} is lost, and the run cannot continue before its pod {first.name} is deleted"
        text = f"{what}; {_remedy(workload)}"
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, first)
    silent = [pod for pod in pods if pod.silent and not pod.over]
    if silent:
        text = f"node {silent[0].node} does not answer; {_names(silent)} may be lost."
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, silent[0])


def _remedy(workload: Workload) -> str:
    if workload.lost_after is not None:
        return f"stepset deletes the pod by force {workload.lost_after:.0f} s after its deletion was due"
    return "repair the node, or add the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def _waits(waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """Problems that the kubelet reports about waiting containers, permanent ones first."""
    waits = [(pod, pod.wait) for pod in waiting if pod.wait is not None]
    before = [(pod, wait) for pod, wait in waits if wait.container != CONTAINER and wait.reason in _ENDS_AGAIN]
    if before:
        pod, wait = before[0]
        text = f"{_names([pod for pod, _ in before])} cannot be started, as its container {wait.container} ends again"
        details = f"{wait.reason}: {wait.message}" if wait.message else wait.reason
        yield _trouble(STARTING, FailureKind.INFRASTRUCTURE, f"{text} and again: {details}", pod)
    for reasons, words, reason in (
        (_NO_IMAGE, "cannot get the image", PULLING),
        (_IMAGE, "cannot get the image", PULLING),
        (_CONFIG, "cannot be started", STARTING),
        (_OTHER_WAITS, "cannot be started", STARTING),
    ):
        found = [(pod, wait) for pod, wait in waits if wait.reason in reasons]
        if found:
            wait = _most_specific([wait for _, wait in found])
            kind, wait_limit = _kind_and_limit(wait)
            details = f"{wait.reason}: {wait.message}" if wait.message else wait.reason
            text = f"{_names([pod for pod, _ in found])} {words}: {details}"
            if _FORBIDDEN.search(wait.message):
                text += f"; {_OTHER_USER}"
            serious = _CACHE_NOT_FILLED.search(wait.message) is None
            yield _trouble(reason, kind, text, found[0][0], wait_limit=wait_limit, serious=serious)


def _kind_and_limit(wait: Wait) -> tuple[FailureKind, float | None]:
    """The failure kind of a wait, and the seconds it may last."""
    if wait.reason in _NO_IMAGE:
        return FailureKind.IMAGE_PULL, NO_FIX
    if wait.reason in _IMAGE:
        return FailureKind.IMAGE_PULL, None
    if wait.reason in _CONFIG and _FORBIDDEN.search(wait.message):
        return FailureKind.REJECTED, NO_FIX
    if wait.reason in _CONFIG and _MISSING.search(wait.message):
        return FailureKind.REJECTED, FIX_BY_USER
    return FailureKind.INFRASTRUCTURE, None


def _most_specific(waits: Sequence[Wait]) -> Wait:
    """The most detailed reason; the kubelet's messages during a back-off have fewer details."""
    return max(waits, key=lambda wait: (not wait.reason.endswith("BackOff"), len(wait.message)))


def _not_created(objects: RunObjects, workload: Workload, pods: Sequence[Pod]) -> Iterator[Trouble]:
    """Pods, Jobs or JobSets that were rejected, which only events report."""
    if len(pods) >= sum(workload.groups.values()) > 0:
        return
    refused = [event for event in objects.events.of(REFUSED) if not _created_later(event, objects, pods)]
    if refused:
        event = refused[-1]
        text = f"{event.kind} {event.name} cannot create its objects: {event.message}"
        if re.search(LACKS_RESTRICTED, event.message):
            text += f"; {REMEDY}"
        if "quota" in event.message:
            yield _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text)
        elif _NO_ANSWER.search(event.message):
            yield _trouble(STARTING, FailureKind.INFRASTRUCTURE, text)
        else:
            yield _trouble(STARTING, FailureKind.REJECTED, text, wait_limit=FIX_BY_USER)


def _created_later(event: Event, objects: RunObjects, pods: Sequence[Pod]) -> bool:
    """Whether a rejected object exists now. Creation times are whole seconds."""
    jobs = {job.name: job for job in objects.jobs}
    if event.kind == "Job" and event.name in jobs:
        own = [pod for pod in pods if pod.job == event.name]
        return len(own) >= sum(jobs[event.name].groups.values()) or last_created(own) > event.last
    if event.kind in ("JobSet", "TrainJob"):
        last_job = max((job.created for job in jobs.values()), default=0.0)
        return max(last_job, last_created(pods)) > event.last - 1.0
    return last_created(pods) > event.last


def last_created(pods: Sequence[Pod]) -> float:
    """When the newest pod was created; 0 without pods."""
    return max((pod.created for pod in pods), default=0.0)


def _mounts(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """Unavailable volumes and networks, which only events report."""
    by_uid = {pod.uid: pod for pod in waiting if pod.scheduled is not None and pod.ready_to_start is None}
    if not by_uid:
        return
    for reasons in (_MOUNT, _SANDBOX):
        found = [event for event in objects.events.of(reasons) if event.about in by_uid and not _is_transient(event)]
        if found:
            pod = by_uid[found[-1].about]
            affected = [by_uid[uid] for uid in dict.fromkeys(event.about for event in found)]
            text = f"{_names([pod, *(each for each in affected if each is not pod)])} cannot be started: "
            missing = _MISSING.search(found[-1].message) is not None
            kind = FailureKind.REJECTED if missing else FailureKind.INFRASTRUCTURE
            wait_limit = FIX_BY_USER if missing else None
            yield _trouble(STARTING, kind, text + found[-1].message, pod, wait_limit=wait_limit)


def _is_transient(event: Event) -> bool:
    """Whether an event only shows that the kubelet's caches are not filled yet."""
    return _CACHE_NOT_FILLED.search(event.message) is not None and event.last - event.first < TRANSIENT_FOR


def _no_room(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    without = [pod for pod in waiting if pod.unschedulable]
    if without:
        text = f"no room for {_names(without)}: {without[0].unschedulable}"
        wait_limit = FIX_BY_USER if _MISSING.search(without[0].unschedulable) else None
        yield _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text, without[0], wait_limit=wait_limit)


def _pulling(waiting: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """An image that is being pulled: not a problem, but the reason why the run has not started.

    It is inferred from a container that waits for nothing else. The kubelet's event about the image is not a warning,
    and only warnings are watched.
    """
    pulling = [pod for pod in waiting if pod.wait is not None and now - (pod.ready_to_start or now) > PULLING_AFTER]
    if pulling:
        text = f"{_names(pulling)} {_waits_word(pulling)} for the image."
        yield _trouble(PULLING, FailureKind.IMAGE_PULL, text, pulling[0], serious=False)


def _queue(objects: RunObjects, workload: Workload, now: float) -> Trouble | None:
    """The wait of a suspended run in a queue."""
    place = _place(objects, workload)
    if place is not None:
        return _trouble(QUEUED, FailureKind.UNSCHEDULABLE, queue_sentence(place), waiting=place)
    if workload.queue and not objects.kueue_workloads and now - workload.created > UNQUEUED:
        text = (
            f"the run is suspended and has no place in queue {workload.queue}: check that the queue exists and"
            f" that Kueue manages {workload.kind}s in this cluster."
        )
        return _trouble(QUEUED, FailureKind.UNSCHEDULABLE, text)
    return None


def _place(objects: RunObjects, workload: Workload) -> Waiting | None:
    """The run's place in a Kueue queue; None if it does not wait in one."""
    queued = objects.queued
    return None if queued is None else queued.waiting(workload.queue, objects.position)


def _trouble(reason: str, kind: FailureKind, text: str, pod: Pod | LostPod | None = None, **more: Any) -> Trouble:
    place = {} if pod is None else {"pod": pod.name, "node": pod.node}
    return Trouble(reason, make_failure(kind, text, **place), **more)


def _names(pods: Sequence[Pod]) -> str:
    """Pods as text: the name of the first, and the number of the others."""
    first = f"pod {pods[0].name}" + (f" on {pods[0].node}" if pods[0].node else "")
    return first + (f" and {len(pods) - 1} more" if len(pods) > 1 else "")


def _waits_word(pods: Sequence[Pod]) -> str:
    return "wait" if len(pods) > 1 else "waits"
