"""Finds problems that keep a run from making progress.

Examples are missing resources, images or Secrets, an exceeded quota, a webhook that rejects pods, and a lost node. Such
a problem is not a failure, because the problem can be temporary. A waiting caller gives up at its time limit. If the
problem cannot resolve itself, the caller gives up earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stepset.run_status import Failure, FailureKind, Waiting
from stepset.targets.names import CONTAINER, agent_config_map, code_config_map
from stepset.targets.workload_kinds import CREATORS
from stepset.watch.advice import (
    CHANGE_ADVICE,
    CREATE_ADVICE,
    SELECTOR_ADVICE,
    SUBMIT_ADVICE,
    claim_advice,
    failed_container_advice,
    init_container_advice,
    make_failure,
)
from stepset.watch.cluster.events import MOUNT, PULL_SECRET, REFUSED, SANDBOX, Event
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod, Wait
from stepset.watch.cluster.workload import Workload
from stepset.watch.present import problems
from stepset.watch.present.sentences import queue_sentence

OVERDUE = 10.0
"""If the deletion of a pod is overdue by this number of seconds, its node is lost. A working kubelet needs less."""
PULLING_AFTER = 3.0
"""The number of seconds after which a container that waits for nothing else is assumed to wait for its image."""
INIT_AFTER = 10.0
"""The number of seconds after which a running init container is reported. Most init containers need less."""
FIX_BY_USER = 120.0
"""The number of seconds in which a user can fix a problem that cannot resolve itself, such as a missing Secret or a
policy. The kubelet retries a volume after two minutes at the latest (pkg/util/goroutinemap/exponentialbackoff)."""
NO_FIX = 5.0
"""The number of seconds to wait if the problem is in a pod itself. Such a problem cannot be fixed, but the pod may be a
pod of another user with the index of a pod of the run. The controller of the Job deletes one of the two pods after
about a second (SyncJobBatchPeriod in kubernetes v1.36 pkg/controller/job/job_controller.go)."""
TRANSIENT_FOR = 60.0
"""The number of seconds for which a transient problem may recur before it is reported."""
_OWN_OBJECT = r'(?i)\b(?:configmap|secret|(?:jobset|job|trainjob)\.[-.\w]+) "%s(?:-[^"]*)?" not found'
"""Matches a message about a missing object of a run. `%s` is the escaped name of the run."""

# The reasons why a run waits (RunStatus.reason). Unschedulable is also a FailureKind: it is the kind of the failure of
# a run that waited too long.
QUEUED, UNSCHEDULABLE, PULLING, STARTING, NODE_LOST = "Queued", "Unschedulable", "PullingImage", "Starting", "NodeLost"

# Waiting cannot help. The name of the image is invalid, or the image is absent and must not be pulled.
_NO_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed")
_CONFIG = ("CreateContainerConfigError",)
_OTHER_WAITS = ("CreateContainerError", "RunContainerError", "PostStartHookError")
_ENDS_AGAIN = ("CrashLoopBackOff",)

# The kubelet's messages about an image that the security context of the pod forbids.
_FORBIDDEN = re.compile(r"runAsNonRoot|runAsUser")
# Messages of the kubelet and the API server about a missing object.
_MISSING = re.compile(
    r'\b(secret|configmap|persistentvolumeclaim)s? "[^"]*" not found|references non-existent (secret|config) key'
    r"|couldn't find key"
)
# The kubelet's event about imagePullSecrets (kubernetes v1.36 pkg/kubelet/kubelet_pods.go).
_PULL_SECRETS = re.compile(r"image pull secrets \(([^()]{1,400})\)")
# Parts of the scheduler's message (kubernetes v1.36 pkg/scheduler/framework/types.go, FitError, and its plugins).
_MISSING_CLAIM = re.compile(r'\bpersistentvolumeclaim "([^"]*)" not found')
_NODES = re.compile(r"\b0/(\d{1,9}) nodes are available")
_UNBOUND = re.compile(r"\bpod has unbound immediate PersistentVolumeClaims")
_NO_VOLUME = re.compile(r"\b(\d{1,9}) node\(s\) didn't find available persistent volumes to bind")
_LABELS = re.compile(r"\b(\d{1,9}) node\(s\) didn't match Pod's node affinity/selector")
_TAINTS = re.compile(r"\b(\d{1,9}) node\(s\) had untolerated taint")
# The kubelet has not read the objects of a new pod yet.
_CACHE_NOT_FILLED = re.compile(r"failed to sync \w+ cache|object \S+ not registered")
# An admission webhook does not answer, or the server has problems.
_NO_ANSWER = re.compile(r"failed calling webhook|[Ii]nternal error|[Tt]imed? ?out|etcdserver|connection refused")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that keeps a run from making progress."""

    reason: str  # Queued, Unschedulable, PullingImage, Starting or NodeLost
    failure: Failure  # the failure of the run if the caller gave up now
    serious: bool = True  # False for a normal, short wait
    wait_limit: float | None = None  # the maximum number of seconds to wait; None if the problem may end at any time
    waiting: Waiting | None = None  # the queue and the position of the run in this queue, if the run waits in a queue


@dataclass(frozen=True, slots=True)
class LostPod:
    """A pod whose deletion is overdue because its node does not answer."""

    name: str
    uid: str
    node: str
    since: float  # when its deletion was due, in seconds since the epoch
    release: bool  # whether to force-delete it; True if the job sets `lost_node_after` and this time has passed


def lost_pods(objects: RunObjects, now: float) -> list[LostPod]:
    """Returns the pods whose deletion is overdue. `now` is in seconds since the epoch.

    Pods of all attempts are included. A new attempt waits until the old pods are deleted. Job and JobSet do not report
    this wait.
    """
    workload = objects.workload
    after = workload.lost_after if workload is not None else None
    return [
        LostPod(pod.name, pod.uid, pod.node, pod.due, after is not None and now >= pod.due + after)
        for pod in objects.history.terminating()
        # If the exit of a pod is known, the node of the pod has reported it. Therefore the node is not lost.
        if pod.due is not None and now > pod.due + OVERDUE and not pod.over
    ]


def trouble_of(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Trouble | None:
    """Returns the worst problem that keeps a run from making progress, or None. `now` is in seconds since the epoch."""
    if workload.suspended:
        return _queue(objects, workload)
    return next(_troubles(objects, workload, pods, now), None)


def _troubles(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """Yields all problems, the worst first."""
    yield from _nodes(objects, workload, pods, now)
    waiting = [pod for pod in pods if not pod.over and not pod.running]
    yield from _waits(objects, waiting)
    yield from _not_created(objects, workload, pods)
    yield from _mounts(objects, workload, waiting)
    yield from _no_room(objects, waiting)
    gated = [pod for pod in waiting if pod.gated]
    if gated:
        place = _place(objects, workload)
        yield _in_queue(objects, problems.waits_for_gates(_places(gated), place), place, gated[0])
    yield from _initializing(waiting, now)
    yield from _pulling(waiting, now)


def _nodes(objects: RunObjects, workload: Workload, pods: Sequence[Pod], now: float) -> Iterator[Trouble]:
    lost = lost_pods(objects, now)
    if lost:
        first = min(lost, key=lambda pod: (pod.since, pod.name))
        text = problems.node_lost(first.node, first.name, workload.lost_after)
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, first)
    silent = [pod for pod in pods if pod.silent and not pod.over]
    if silent:
        text = problems.node_silent(silent[0].node, _places(silent))
        yield _trouble(NODE_LOST, FailureKind.INFRASTRUCTURE, text, silent[0])


def _waits(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """Yields the problems that the kubelet reports about waiting containers. Permanent problems come first."""
    waits = [(pod, pod.wait) for pod in waiting if pod.wait is not None]
    before = [(pod, wait) for pod, wait in waits if wait.container != CONTAINER and wait.reason in _ENDS_AGAIN]
    if before:
        pod, wait = before[0]
        text = problems.ends_again(_places([pod for pod, _ in before]), wait.container, _details(wait))
        advice = failed_container_advice(pod.name, wait.container, pod.namespace)
        yield _trouble(STARTING, FailureKind.INFRASTRUCTURE, text, pod, advice)
    for reasons, reason in ((_NO_IMAGE, PULLING), (_IMAGE, PULLING), (_CONFIG, STARTING), (_OTHER_WAITS, STARTING)):
        found = [(pod, wait) for pod, wait in waits if wait.reason in reasons]
        if found:
            wait = _most_specific([wait for _, wait in found])
            kind, wait_limit = _kind_and_limit(wait)
            places, forbidden = _places([pod for pod, _ in found]), _FORBIDDEN.search(wait.message) is not None
            if reason == PULLING:
                text = problems.no_image(places, _details(wait), _unread_pull_secrets(objects, waiting))
            else:
                text = problems.cannot_start(places, _details(wait), forbidden_user=forbidden)
            serious = _CACHE_NOT_FILLED.search(wait.message) is None
            yield _trouble(reason, kind, text, found[0][0], wait_limit=wait_limit, serious=serious)


def _unread_pull_secrets(objects: RunObjects, waiting: Sequence[Pod]) -> str:
    """Returns the names of the imagePullSecrets that the kubelet could not read for the waiting pods, or ""."""
    uids = {pod.uid for pod in waiting}
    events = (event for event in objects.events.of(PULL_SECRET) if event.about in uids)
    found = (_PULL_SECRETS.search(event.message) for event in events)
    return ", ".join(dict.fromkeys(each[1] for each in found if each is not None))


def _details(wait: Wait) -> str:
    return f"{wait.reason}: {wait.message}" if wait.message else wait.reason


def _kind_and_limit(wait: Wait) -> tuple[FailureKind, float | None]:
    """Returns the kind of failure for a wait, and the maximum number of seconds that the wait may last."""
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
    """Returns the wait with the most detailed message. During a back-off, the kubelet's messages have fewer details."""
    return max(waits, key=lambda wait: (not wait.reason.endswith("BackOff"), len(wait.message)))


def _not_created(objects: RunObjects, workload: Workload, pods: Sequence[Pod]) -> Iterator[Trouble]:
    """Yields rejections of pods, Jobs or JobSets. Only events report such rejections."""
    if len(pods) >= sum(workload.groups.values()) > 0:
        return
    refused = [
        event
        for event in objects.events.of(REFUSED)
        if not _created_later(event, objects, pods) and not _is_transient(event, workload)
    ]
    if refused:
        event = refused[-1]
        text = problems.cannot_create(event.kind, event.name, event.message)
        if "quota" in event.message:
            yield _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text)
        elif _NO_ANSWER.search(event.message):
            yield _trouble(STARTING, FailureKind.INFRASTRUCTURE, text)
        else:
            yield _trouble(STARTING, FailureKind.REJECTED, text, wait_limit=FIX_BY_USER)


def _created_later(event: Event, objects: RunObjects, pods: Sequence[Pod]) -> bool:
    """Returns whether an object that was rejected exists now. Creation times are whole seconds."""
    jobs = {job.name: job for job in objects.jobs}
    if event.kind == "Job" and event.name in jobs:
        own = [pod for pod in pods if pod.job == event.name]
        return len(own) >= sum(jobs[event.name].groups.values()) or last_created(own) > event.last
    if event.kind in CREATORS:
        last_job = max((job.created for job in jobs.values()), default=0.0)
        return max(last_job, last_created(pods)) > event.last - 1.0
    return last_created(pods) > event.last


def last_created(pods: Sequence[Pod]) -> float:
    """Returns when the newest pod was created, or 0 if there are no pods."""
    return max((pod.created for pod in pods), default=0.0)


def _mounts(objects: RunObjects, workload: Workload, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    """Yields unavailable volumes and networks. Only events report these problems."""
    by_uid = {pod.uid: pod for pod in waiting if pod.scheduled is not None and pod.ready_to_start is None}
    if not by_uid:
        return
    for reasons in (MOUNT, SANDBOX):
        found = [
            event
            for event in objects.events.of(reasons)
            if event.about in by_uid and not _is_transient(event, workload)
        ]
        if found:
            pod = by_uid[found[-1].about]
            affected = [by_uid[uid] for uid in dict.fromkeys(event.about for event in found)]
            places = _places([pod, *(each for each in affected if each is not pod)])
            message = found[-1].message
            missing = _MISSING.search(message) is not None
            kind = FailureKind.REJECTED if missing else FailureKind.INFRASTRUCTURE
            wait_limit = FIX_BY_USER if missing else None
            if any(f'"{name(workload.run)}" not found' in message for name in (agent_config_map, code_config_map)):
                text, advice = problems.not_submitted(places, message), SUBMIT_ADVICE
            else:
                text, advice = problems.cannot_start(places, message), ""
            yield _trouble(STARTING, kind, text, pod, advice=advice, wait_limit=wait_limit)


def _is_transient(event: Event, workload: Workload) -> bool:
    """Returns whether an event only shows that a cache is not filled yet, or that a submission is not complete yet.

    A submission creates the ConfigMaps of a run after its workload. After the creation of a JobSet, a webhook may
    reject its Jobs for a moment, because the webhook's cache does not contain the JobSet.
    """
    own = _OWN_OBJECT % re.escape(workload.run)
    soon = _CACHE_NOT_FILLED.search(event.message) is not None or re.search(own, event.message) is not None
    return soon and event.last - event.first < TRANSIENT_FOR


def _no_room(objects: RunObjects, waiting: Sequence[Pod]) -> Iterator[Trouble]:
    without = [pod for pod in waiting if pod.unschedulable]
    if without:
        pod, places, why = without[0], _places(without), without[0].unschedulable
        text, advice, limit = problems.no_room(places, why), "", None
        if missing := _MISSING_CLAIM.search(why):
            text, advice, limit = problems.claim_missing(missing[1], places, why), CREATE_ADVICE, FIX_BY_USER
        elif _UNBOUND.search(why) or _excludes_all(why, _NO_VOLUME):
            text, advice = problems.claim_unbound(pod.claims, places, why), claim_advice(pod.claims, pod.namespace)
        elif _excludes_all(why, _LABELS):
            text, advice = problems.no_matching_node(places, why), SELECTOR_ADVICE
        yield _trouble(UNSCHEDULABLE, FailureKind.UNSCHEDULABLE, text, pod, advice, wait_limit=limit)


def _excludes_all(message: str, reason: re.Pattern[str]) -> bool:
    """Returns whether the scheduler excludes every node for `reason` or because of its taints, and a node for `reason`.

    `message` is the message of the scheduler. The count of a reason is the number of nodes with this reason.
    """
    nodes, found = _NODES.search(message), reason.search(message)
    if nodes is None or found is None:
        return False
    return int(found[1]) + sum(map(int, _TAINTS.findall(message))) >= int(nodes[1])


def _initializing(waiting: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """Yields the init container that runs longest as the reason why the run has not started."""
    running = [(pod.init.started or now, pod, pod.init) for pod in waiting if pod.init is not None]
    if running:
        since, pod, init = min(running, key=lambda each: each[0])
        places = _places([pod, *(each for _, each, other in running if other.name == init.name and each is not pod)])
        text = problems.init_container_runs(places, init.name, since)
        advice = init_container_advice(pod.name, init.name, pod.namespace)
        yield _trouble(STARTING, FailureKind.INFRASTRUCTURE, text, pod, advice, serious=now - since > INIT_AFTER)


def _pulling(waiting: Sequence[Pod], now: float) -> Iterator[Trouble]:
    """Yields the pull of an image as the reason why the run has not started. A pull is not a problem.

    A container that waits for nothing else is assumed to wait for its image. The kubelet's event about the image is not
    a warning, and only warnings are watched.
    """
    pulling = [pod for pod in waiting if pod.wait is not None and now - (pod.ready_to_start or now) > PULLING_AFTER]
    if pulling:
        text = problems.waits_for_image(_places(pulling))
        yield _trouble(PULLING, FailureKind.IMAGE_PULL, text, pulling[0], serious=False)


def _queue(objects: RunObjects, workload: Workload) -> Trouble | None:
    """Returns the trouble of a suspended run that waits in a queue."""
    place = _place(objects, workload)
    if place is not None:
        return _in_queue(objects, queue_sentence(place), place)
    unqueued = objects.unqueued
    if unqueued is None or objects.kueue_workloads or not (unqueued.confirmed or unqueued.missing):
        return None
    # If the account has no permission to read Workloads, it is possible that the run is queued and that its priority
    # class was deleted afterwards.
    limit = FIX_BY_USER if unqueued.confirmed and unqueued.missing else None
    text = unqueued.sentence(workload.queue, workload.kind)
    return _trouble(QUEUED, FailureKind.UNSCHEDULABLE, text, advice=unqueued.advice, wait_limit=limit)


def _in_queue(objects: RunObjects, text: str, place: Waiting | None, pod: Pod | None = None) -> Trouble:
    """Returns the trouble of a run that waits in a queue.

    The trouble has a `wait_limit` if the queue cannot admit the run until a user changes the job or the queue. If the
    run is paused, the trouble has no limit.
    """
    if place is None or not place.inadmissible:
        return _trouble(QUEUED, FailureKind.UNSCHEDULABLE, text, pod, waiting=place)
    # The queue may be stopped for maintenance, or a user may have deactivated the Workload.
    paused = objects.queued is not None and objects.queued.paused
    limit = None if paused else FIX_BY_USER
    kind = FailureKind.UNSCHEDULABLE
    return _trouble(QUEUED, kind, text, pod, CHANGE_ADVICE, waiting=place, wait_limit=limit)


def _place(objects: RunObjects, workload: Workload) -> Waiting | None:
    """Returns the Kueue queue and the run's position in it, or None if the run does not wait in a Kueue queue."""
    queued = objects.queued
    return None if queued is None else queued.waiting(workload.queue, objects.position)


def _trouble(
    reason: str, kind: FailureKind, text: str, pod: Pod | LostPod | None = None, advice: str = "", **more: Any
) -> Trouble:
    """Returns a problem. If `advice` is empty, the advice for the kind of the failure is used."""
    known = {} if pod is None else {"pod": pod.name, "node": pod.node}
    if advice:
        known["advice"] = advice
    return Trouble(reason, make_failure(kind, text, **known), **more)


def _places(pods: Sequence[Pod]) -> list[tuple[str, str]]:
    return [(pod.name, pod.node) for pod in pods]
