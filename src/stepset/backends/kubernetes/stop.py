"""Suspends and deletes runs, and kills pods; always by uid, so that another object of the same name is never affected.

An object that no longer exists is no error. Every function raises InfrastructureError if the server cannot be reached
or denies access.
"""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import PODS, Manifest
from stepset.errors import InfrastructureError
from stepset.targets.metadata import QUEUE_LABEL
from stepset.watch.cluster.objects import RunObjects


async def delete(site: NamespacedClient, workload: Manifest) -> None:
    """Deletes a run; its workload is removed after its pods."""
    options = {"preconditions": {"uid": workload["metadata"]["uid"]}, "propagationPolicy": "Foreground"}
    check(await site.client.delete(site.path_of(workload), options), "deleted", workload)


def stays_suspended(workload: Manifest) -> bool:
    """Whether `suspend` keeps the workload: a queue would resume it, and Volcano's jobs cannot be suspended."""
    volcano = workload["apiVersion"].startswith("batch.volcano.sh/")
    return not volcano and QUEUE_LABEL not in (workload["metadata"].get("labels") or {})


async def suspend(site: NamespacedClient, workload: Manifest) -> None:
    """Removes a run's pods and keeps its objects; deletes a run that would not stay suspended."""
    if not stays_suspended(workload):
        await delete(site, workload)
        return
    spec = {"replicas": 0} if workload["kind"] == "StatefulSet" else {"suspend": True}
    # The uid in a patch is a precondition: on another object of the name it is a conflict.
    body = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": spec}
    check(await site.client.patch(site.path_of(workload), body), "suspended", workload)


async def kill_pods(site: NamespacedClient, objects: RunObjects) -> None:
    """Kills a run's pods without a grace period; `objects` are those last seen."""
    own = objects.every_pod()
    owners = {objects.uid, *(pod.owner for pod in own)}
    earlier = [pod for pod in objects.terminating() if pod.owner in owners]
    for pod in {pod.uid: pod for pod in (*own, *earlier)}.values():
        if not pod.deleted:
            await kill_pod(site, pod.name, pod.uid)


async def kill_pod(site: NamespacedClient, name: str, uid: str) -> None:
    """Deletes a pod without waiting for its node to confirm it, which a lost node never does."""
    options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}
    pod = {"kind": "Pod", "metadata": {"name": name}}
    check(await site.client.delete(site.one(PODS, name), options), "deleted", pod)


async def release_pod(site: NamespacedClient, name: str, uid: str) -> None:
    """Takes a pod away from a lost node, so that the gang can start elsewhere.

    A Job with a podFailurePolicy keeps a pod, deleted by force or not, until the pod's phase is Failed, which normally
    the kubelet writes; the pod's own finalizer is the Job's (kubernetes v1.36 pkg/controller/job/job_controller.go, the
    same as its pod garbage collector does for nodes that are out of service: pkg/controller/podgc; executed).
    """
    pod = {"kind": "Pod", "metadata": {"name": name}}
    failed = {"metadata": {"uid": uid}, "status": {"phase": "Failed"}}
    check(await site.client.patch(f"{site.one(PODS, name)}/status", failed), "released", pod)
    await kill_pod(site, name, uid)


def check(reply: Reply, what: str, manifest: Manifest) -> bool:
    """Whether a request was accepted; False if the object no longer exists, or another one has its name.

    `what` completes error messages, such as `deleted`.
    """
    if reply.accepted or reply.status in (404, 409) or _another(reply):
        return reply.accepted
    said, remedy = reply.message.rstrip(".") or reply.status, "; see stepset rbac" if lacks_permission(reply) else ""
    raise InfrastructureError(f"{manifest['kind']} {manifest['metadata']['name']} cannot be {what}: {said}{remedy}")


def _another(reply: Reply) -> bool:
    """Whether the uid in a patch was another object's; custom resources call that invalid, others a conflict."""
    causes = (reply.body.get("details") or {}).get("causes") or ()
    return reply.status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes)
