"""Suspends and deletes runs, and kills pods; always by uid, so that another object of the same name is never affected.

An object that no longer exists is not an error. Every function raises InfrastructureError if the server cannot be
reached or denies access.
"""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import PODS, Manifest, resource_of
from stepset.backends.kubernetes.find import listed
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import BadInputError, InfrastructureError
from stepset.targets.metadata import QUEUE_LABEL, RUN
from stepset.unstructured import Fields, part, text
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.ownership import controller_of, is_run


async def delete(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Deletes a run; the server removes its workload after its pods. Raises BadInputError for any other object.

    A TrainJob is removed before its pods. While a TrainJob exists, its controller creates its JobSet again, which would
    train once more; and if its TrainingRuntime is deleted first, a webhook refuses the request that completes the
    TrainJob's deletion (kubeflow/trainer v2.3.0 pkg/controller/trainjob_controller.go, pkg/webhooks; tested).
    """
    await _check_run(namespaced, workload)
    policy = "Background" if workload["kind"] == "TrainJob" else "Foreground"
    options = {"preconditions": {"uid": workload["metadata"]["uid"]}, "propagationPolicy": policy}
    check(await namespaced.client.delete(namespaced.path_of(workload), options), "deleted", workload, namespaced)


def stays_suspended(workload: Manifest) -> bool:
    """Whether a suspended workload stays suspended: a queue would resume it, and Volcano's jobs cannot be suspended."""
    volcano = workload["apiVersion"].startswith("batch.volcano.sh/")
    return not volcano and QUEUE_LABEL not in (workload["metadata"].get("labels") or {})


async def suspend(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Removes a run's pods and keeps its objects; deletes a run that would not stay suspended."""
    await _check_run(namespaced, workload)
    if not stays_suspended(workload):
        await delete(namespaced, workload)
        return
    spec = {"replicas": 0} if workload["kind"] == "StatefulSet" else {"suspend": True}
    # The uid in a patch is a precondition: the server refuses the patch if another object has this name.
    body = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": spec}
    check(await namespaced.client.patch(namespaced.path_of(workload), body), "suspended", workload, namespaced)


async def _check_run(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Raises BadInputError unless the object is the workload of a run; reads it if its labels are not known."""
    if "labels" not in workload["metadata"]:
        reply = await namespaced.client.get(namespaced.path_of(workload))
        if not reply.accepted or reply.body["metadata"]["uid"] != workload["metadata"]["uid"]:
            return  # the requests that follow have the uid as a precondition
        workload = {**workload, "metadata": reply.body["metadata"]}
    check_run(workload)


def check_run(workload: Manifest) -> None:
    """Raises BadInputError unless an object is the workload of a run."""
    if not is_run(workload):
        name = f"{workload['kind']} {workload['metadata']['name']}"
        raise BadInputError(f"{name} is not a run of stepset: it has no label {RUN}, or it has a controller")


async def has_pods(namespaced: NamespacedClient, workload: Manifest) -> bool:
    """Whether pods of a deleted run still exist and have not ended. Only a TrainJob is removed before its pods."""
    if workload["kind"] != "TrainJob":
        return False
    return await any_pods(namespaced, str(workload["metadata"]["name"]))


async def any_pods(namespaced: NamespacedClient, run: str) -> bool:
    """Whether a TrainJob of this name has pods that have not ended."""
    pods = Collection(PODS.path(namespaced.namespace), {"labelSelector": f"{RUN}={run}"})
    return any(_remains(each.object, run) for each in await listed(namespaced, pods))


def _remains(pod: Fields, run: str) -> bool:
    """Whether a pod has not ended and may belong to a Job of a run; the Job may be deleted already.

    The run's label is not sufficient, because another user can create pods with it. The garbage collector deletes a pod
    whose controller is a Job that never existed. If a finalizer keeps such a pod, it never starts.
    """
    owner, meta = controller_of(pod), part(pod, "metadata")
    if owner.kind != "Job" or not owner.name.startswith(f"{run}-"):
        return False
    never_starts = "deletionTimestamp" in meta and not text(part(pod, "spec"), "nodeName")
    return not never_starts and text(part(pod, "status"), "phase") not in ("Succeeded", "Failed")


async def kill_pods(namespaced: NamespacedClient, objects: RunObjects) -> None:
    """Kills a run's pods without a grace period; `objects` are those last seen."""
    for pod in {pod.uid: pod for pod in (*objects.every_pod(), *objects.terminating())}.values():
        if not pod.deleted:
            await kill_pod(namespaced, pod.name, pod.uid)


async def kill_pod(namespaced: NamespacedClient, name: str, uid: str) -> None:
    """Deletes a pod without the confirmation of its node, which a lost node never sends."""
    options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    check(await namespaced.client.delete(namespaced.one(PODS, name), options), "deleted", pod, namespaced)


async def release_pod(namespaced: NamespacedClient, name: str, uid: str) -> None:
    """Sets the phase of a lost node's pod to Failed and deletes the pod, so that the gang can start on another node.

    A Job with a podFailurePolicy keeps a pod by a finalizer, even if it is deleted by force, until its phase is Failed,
    which the kubelet normally writes (kubernetes v1.36 pkg/controller/job/job_controller.go). The pod garbage collector
    does the same for nodes that are out of service (pkg/controller/podgc; tested).
    """
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    failed = {"metadata": {"uid": uid}, "status": {"phase": "Failed"}}
    check(await namespaced.client.patch(f"{namespaced.one(PODS, name)}/status", failed), "released", pod, namespaced)
    await kill_pod(namespaced, name, uid)


def check(reply: Reply, what: str, manifest: Manifest, namespaced: NamespacedClient) -> bool:
    """Returns whether a request was accepted; False if the object no longer exists or has another uid.

    Raises InfrastructureError for any other refusal; `what` is its verb, such as `deleted`.
    """
    if reply.accepted or not exists_with_uid(reply):
        return reply.accepted
    named = f"{manifest['kind']} {manifest['metadata']['name']} cannot be {what}"
    if lacks_permission(reply):
        raise InfrastructureError(f"{named}: {namespaced.of_kind(resource_of(manifest)).missing_permission(reply)}")
    raise InfrastructureError(f"{named}: {reply.message.rstrip('.') or reply.status}")


def exists_with_uid(reply: Reply) -> bool:
    """Whether the object may exist with the requested uid, although the server has refused the request.

    If the uid differs, the server replies 422 for custom resources and 409 for built-in ones.
    """
    causes = (reply.body.get("details") or {}).get("causes") or ()
    differs = reply.status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes)
    return not differs and reply.status not in (404, 409)
