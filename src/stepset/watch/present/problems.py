"""Words the problems that keep a run on a cluster from making progress, and why a caller stopped waiting.

Contains only pure functions. `pods` are pairs of the name of a pod and the name of its node, which is "" if the pod has
no node. A sentence names the first pod, and counts the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from stepset.run_status import Phase, Waiting
from stepset.targets.pods.security import LACKS_RESTRICTED, REMEDY
from stepset.targets.pods.service_account import creation_after
from stepset.watch.present.sentences import queue_sentence

Pods = Sequence[tuple[str, str]]

_OTHER_USER = "use an image whose USER is a number other than 0, or set securityContext.runAsUser in pod_template"

CANNOT_HELP = "waiting cannot resolve this"
"""Why a caller stopped waiting for a run with a problem in the pods themselves."""


def node_lost(node: str, pod: str, release_after: float | None) -> str:
    """Returns that a node does not delete a pod. `release_after` is `lost_node_after` of the job, in seconds."""
    remedy = "repair the node, or add the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    if release_after is not None:
        remedy = f"stepset deletes the pod by force {release_after:.0f} s after its deletion was due"
    return f"node {node} is lost, and the run cannot continue before its pod {pod} is deleted; {remedy}"


def node_silent(node: str, pods: Pods) -> str:
    """Returns that a node does not answer."""
    return f"node {node} does not answer; {_named(pods)} may be lost."


def ends_again(pods: Pods, container: str, why: str) -> str:
    """Returns that a container which precedes the container of the training ends again and again."""
    return f"{_named(pods)} cannot be started, as its container {container} ends again and again: {why}"


def no_image(pods: Pods, why: str, unread: str = "") -> str:
    """Returns that the kubelet cannot get an image. `unread` are the imagePullSecrets that the kubelet cannot read."""
    secret = f"; the kubelet cannot read the imagePullSecret {unread}: create it, or correct its name" if unread else ""
    return f"{_named(pods)} cannot get the image: {why}{secret}"


def cannot_start(pods: Pods, why: str, *, forbidden_user: bool = False) -> str:
    """Returns that pods cannot be started.

    Args:
        forbidden_user: whether the security context of the pods forbids the user of the image.
    """
    return f"{_named(pods)} cannot be started: {why}" + (f"; {_OTHER_USER}" if forbidden_user else "")


def not_submitted(pods: Pods, why: str) -> str:
    """Returns that pods cannot be started, because an object that stepset creates for the run does not exist."""
    return f"the submission of the run is not complete, so {_named(pods)} cannot be started: {why}"


def cannot_create(kind: str, name: str, message: str) -> str:
    """Returns that a controller cannot create the objects of a workload, and the remedy if the remedy is known."""
    remedies = (REMEDY if re.search(LACKS_RESTRICTED, message) else "", creation_after(message))
    return "; ".join(filter(None, (f"{kind} {name} cannot create its objects: {message}", *remedies)))


def no_room(pods: Pods, why: str) -> str:
    """Returns that the scheduler finds no node for pods."""
    return f"no room for {_named(pods)}: {why}"


def no_matching_node(pods: Pods, why: str) -> str:
    """Returns that the labels and taints of the nodes exclude all nodes."""
    return f"no node matches the node selector, affinity and tolerations of {_named(pods)}: {why}"


def claim_missing(claim: str, pods: Pods, why: str) -> str:
    """Returns that a PersistentVolumeClaim of pods does not exist."""
    return f"PersistentVolumeClaim {claim} does not exist, and {_named(pods)} cannot be scheduled: {why}"


def claim_unbound(claims: Sequence[str], pods: Pods, why: str) -> str:
    """Returns that a PersistentVolumeClaim has no volume. `claims` are the claims of the first pod.

    >>> claim_unbound(["data"], [("train-0", "")], "0/2 nodes are available")
    'PersistentVolumeClaim data is Pending, and pod train-0 cannot be scheduled: 0/2 nodes are available'
    """
    which = f"PersistentVolumeClaim {claims[0]}" if len(claims) == 1 else "a PersistentVolumeClaim"
    among = f" (one of {', '.join(claims)})" if len(claims) > 1 else ""
    return f"{which}{among} is Pending, and {_named(pods)} cannot be scheduled: {why}"


def init_container_runs(pods: Pods, container: str, since: float) -> str:
    """Returns that an init container has not exited yet. `since` is its start, in seconds since the epoch."""
    start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"init container {container} of {_named(pods)} has been running since {start}, and has not exited"


def waits_for_image(pods: Pods) -> str:
    """Returns that pods wait for an image."""
    return f"{_named(pods)} {_wait(pods)} for the image."


def waits_for_gates(pods: Pods, place: Waiting | None) -> str:
    """Returns that pods have scheduling gates. `place` is the place of the run in a queue."""
    why = "" if place is None else queue_sentence(place) if place.inadmissible else place.message
    return f"{_named(pods)} {_wait(pods)} for the removal of scheduling gates{f': {why}' if why else '.'}"


def server_silent(server: str) -> str:
    """Returns the note on a run whose server does not answer."""
    return f"server {server} does not answer; the run continues, and stepset tries to reconnect"


def gave_up_after(seconds: float, *, queued: bool) -> str:
    """Returns after which time limit a caller stopped waiting for the start of a run."""
    return f"gave up after {seconds:.0f} s {'in the queue' if queued else 'without all pods running'}"


def not_fixed_for(seconds: float) -> str:
    """Returns for how long a caller waited for a user to fix a problem."""
    return f"gave up after {seconds:.0f} s in which the problem was not fixed"


def still_waiting(phase: Phase, reason: str, spent: str) -> str:
    """Returns that a caller stopped waiting although no problem is known. `spent` states after which time."""
    return f"the run is still {phase.value}{f' ({reason})' if reason else ''}; {spent}"


def _named(pods: Pods) -> str:
    name, node = pods[0]
    return f"pod {name}{f' on {node}' if node else ''}{f' and {len(pods) - 1} more' if len(pods) > 1 else ''}"


def _wait(pods: Pods) -> str:
    return "wait" if len(pods) > 1 else "waits"
