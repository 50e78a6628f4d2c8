"""Suspends and deletes runs, and kills pods.

Every request contains the uid of an object, so a newer object with the same name is never affected. If the object no
longer exists, the functions raise no error. Every function that sends requests raises InfrastructureError if the server
cannot be reached or denies access.
"""

from __future__ import annotations

import asyncio
import time

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import PODS, Manifest, resource_of
from stepset.backends.kubernetes.applied import own_applied_objects
from stepset.backends.kubernetes.find import listed
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import BadInputError, InfrastructureError
from stepset.targets.metadata import QUEUE_LABEL, RUN
from stepset.targets.workload_kinds import workload_kind
from stepset.unstructured import Fields, part, rows, text
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import controller_of, is_run
from stepset.watch.cluster.workload import read_workload
from stepset.watch.present.sentences import REMOVED

REPORTED_WITHIN = 10.0
"""Seconds to wait until the controller of a finished run reports that the run is finished."""
_POLL = 0.2


async def delete(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Deletes a run. The server removes the run's pods first, then its workload.

    If the workload is a TrainJob, the server removes the TrainJob first. The order is reversed for two reasons:

    - If the JobSet of a TrainJob is deleted, the controller of the TrainJob creates a new JobSet. The new JobSet would
      start the job again.
    - If the TrainingRuntime is deleted first, a webhook refuses the request that completes the deletion of the
      TrainJob.

    Source: kubeflow/trainer v2.3.0 pkg/controller/trainjob_controller.go and pkg/webhooks (tested).

    The server deletes all objects that the workload owns. If a user has applied the objects of the run, the workload
    first becomes their owner.

    Raises BadInputError if the object is not the workload of a run.
    """
    await _check_run(namespaced, workload)
    await own_applied_objects(namespaced, workload)
    policy = workload_kind(workload).deletion
    options = {"preconditions": {"uid": workload["metadata"]["uid"]}, "propagationPolicy": policy}
    check(await namespaced.client.delete(namespaced.path_of(workload), options), "deleted", workload, namespaced)


async def delete_ended(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Waits until the controller of a finished run reports that the run is finished, then deletes the run.

    The function waits at most REPORTED_WITHIN seconds for this report. stepset watches the pods, so stepset may know
    earlier than the controller that the run is finished. If stepset deleted the workload at once, the controller would
    never confirm the stored verdict. Other processes trust only a confirmed verdict, so they could not report the
    result of the run.
    """
    until = time.monotonic() + REPORTED_WITHIN
    while await _end_is_unconfirmed(namespaced, workload) and time.monotonic() < until:
        await asyncio.sleep(_POLL)
    await delete(namespaced, workload)


async def _end_is_unconfirmed(namespaced: NamespacedClient, workload: Manifest) -> bool:
    """Returns whether the run has a stored verdict that its controller may still confirm."""
    reply = await namespaced.client.get(namespaced.path_of(workload))
    if not reply.accepted or reply.body["metadata"]["uid"] != workload["metadata"]["uid"]:
        return False
    current = read_workload(reply.body)
    return current is not None and current.unconfirmed is not None and current.deletion_requested is None


def stays_suspended(workload: Manifest) -> bool:
    """Returns whether a workload can be suspended permanently.

    Returns False in two cases:

    - The workload is in a queue. The queue would resume the workload.
    - Its kind cannot be suspended (`WorkloadKind.suspension`).
    """
    return bool(workload_kind(workload).suspension) and QUEUE_LABEL not in (workload["metadata"].get("labels") or {})


def removal_notes(workload: Manifest) -> tuple[str, ...]:
    """Returns a note if `suspend` deletes the run of a workload, or an empty tuple."""
    return () if stays_suspended(workload) else (REMOVED,)


async def suspend(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Suspends a run. Then the run has no pods. If `stays_suspended` returns False for the run, deletes the run."""
    await _check_run(namespaced, workload)
    if not stays_suspended(workload):
        await delete(namespaced, workload)
        return
    # The uid in a patch is a precondition. If the existing object has another uid, the server refuses the patch.
    body = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": workload_kind(workload).suspension}
    check(await namespaced.client.patch(namespaced.path_of(workload), body), "suspended", workload, namespaced)


async def _check_run(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Raises BadInputError if the object is not the workload of a run.

    If `workload` has no labels, reads the object from the server.
    """
    if "labels" not in workload["metadata"]:
        reply = await namespaced.client.get(namespaced.path_of(workload))
        if not reply.accepted or reply.body["metadata"]["uid"] != workload["metadata"]["uid"]:
            return  # the object no longer exists; later requests contain its uid, so they change no other object
        workload = {**workload, "metadata": reply.body["metadata"]}
    check_run(workload)


def check_run(workload: Manifest) -> None:
    """Raises BadInputError if an object is not the workload of a run."""
    if not is_run(workload):
        name = f"{workload['kind']} {workload['metadata']['name']}"
        raise BadInputError(f"{name} is not a run of stepset: it has no label {RUN}, or it has a controller")


async def has_pods(namespaced: NamespacedClient, workload: Manifest) -> bool:
    """Returns whether a deleted run has pods that have not terminated.

    Returns False if the workload is deleted in the foreground, because the server then removes its pods first.
    """
    if workload_kind(workload).deletion == "Foreground":
        return False
    return await any_pods(namespaced, str(workload["metadata"]["name"]))


async def any_pods(namespaced: NamespacedClient, run: str) -> bool:
    """Returns whether a TrainJob with the name `run` has pods that have not terminated.

    The TrainJob may already be deleted.
    """
    pods = Collection(PODS.path(namespaced.namespace), {"labelSelector": f"{RUN}={run}"})
    return any(_remains(each.object, run) for each in await listed(namespaced, pods))


def _remains(pod: Fields, run: str) -> bool:
    """Returns whether a pod has not terminated and may belong to a Job of a run. The Job may already be deleted.

    The run's label does not prove that the pod belongs to the run, because another user can create pods with the label
    of the run. If the owner reference of a pod names a Job that never existed, the garbage collector deletes the pod. A
    finalizer can keep the deleted pod, but the pod never starts.
    """
    owner, meta = controller_of(pod), part(pod, "metadata")
    if owner.kind != "Job" or not owner.name.startswith(f"{run}-"):
        return False
    never_starts = "deletionTimestamp" in meta and not text(part(pod, "spec"), "nodeName")
    return not never_starts and text(part(pod, "status"), "phase") not in ("Succeeded", "Failed")


async def kill_pods(namespaced: NamespacedClient, objects: RunObjects) -> None:
    """Kills a run's pods without a grace period. `objects` are the last known objects of the run."""
    for pod in {pod.uid: pod for pod in (*objects.history.every_pod(), *objects.history.terminating())}.values():
        if not pod.deleted:
            await kill_pod(namespaced, pod.name, pod.uid)


async def kill_pod(namespaced: NamespacedClient, name: str, uid: str) -> None:
    """Deletes a pod at once. The deletion does not wait for the node, because a lost node does not answer."""
    options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    check(await namespaced.client.delete(namespaced.one(PODS, name), options), "deleted", pod, namespaced)


async def release_pod(namespaced: NamespacedClient, name: str, uid: str) -> None:
    """Sets the phase of a pod to Failed, then deletes the pod. Use this function if the node of the pod is lost.

    After the deletion, the gang can start on another node. If a Job has a podFailurePolicy, a finalizer keeps a pod of
    the Job until the phase of the pod is Failed. The finalizer also keeps a pod that is deleted by force (kubernetes
    v1.36 pkg/controller/job/job_controller.go). Normally the kubelet sets the phase. If a node is out of service, the
    pod garbage collector sets the phase (pkg/controller/podgc; tested).
    """
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    failed = {"metadata": {"uid": uid}, "status": {"phase": "Failed"}}
    check(await namespaced.client.patch(f"{namespaced.one(PODS, name)}/status", failed), "released", pod, namespaced)
    await kill_pod(namespaced, name, uid)


def check(reply: Reply, what: str, manifest: Manifest, namespaced: NamespacedClient) -> bool:
    """Returns True if a request was accepted, and False if the object no longer exists or has another uid.

    Raises InfrastructureError for any other refusal. `what` is the verb of the error message, such as `deleted`.
    """
    if reply.accepted or not exists_with_uid(reply):
        return reply.accepted
    named = f"{manifest['kind']} {manifest['metadata']['name']} cannot be {what}"
    if lacks_permission(reply):
        raise InfrastructureError(f"{named}: {namespaced.of_kind(resource_of(manifest)).missing_permission(reply)}")
    raise InfrastructureError(f"{named}: {reply.message.rstrip('.') or reply.status}")


def exists_with_uid(reply: Reply) -> bool:
    """Returns whether an object with the requested uid may exist.

    `reply` is a reply with which the server refused the request. If the object has another uid, the status of the reply
    is 422 for a custom resource and 409 for a built-in resource.
    """
    causes = rows(part(reply.body, "details"), "causes")
    differs = reply.status == 422 and any(text(cause, "field") == "metadata.uid" for cause in causes)
    return not differs and reply.status not in (404, 409)
