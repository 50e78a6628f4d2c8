"""Suspends and deletes runs, and kills pods; always by uid, so that another object of the same name is never affected.

An object that no longer exists is not an error. Every function raises InfrastructureError if the server cannot be
reached or denies access.
"""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import PODS, Manifest
from stepset.errors import InfrastructureError
from stepset.targets.metadata import QUEUE_LABEL
from stepset.watch.cluster.objects import RunObjects


async def delete(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Deletes a run; the server removes its workload after its pods."""
    options = {"preconditions": {"uid": workload["metadata"]["uid"]}, "propagationPolicy": "Foreground"}
    check(await namespaced.client.delete(namespaced.path_of(workload), options), "deleted", workload)


def stays_suspended(workload: Manifest) -> bool:
    """Whether `suspend` keeps the workload: a queue would resume it, and Volcano's jobs cannot be suspended."""
    volcano = workload["apiVersion"].startswith("batch.volcano.sh/")
    return not volcano and QUEUE_LABEL not in (workload["metadata"].get("labels") or {})


async def suspend(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Removes a run's pods and keeps its objects; deletes a run that would not stay suspended."""
    if not stays_suspended(workload):
        await delete(namespaced, workload)
        return
    spec = {"replicas": 0} if workload["kind"] == "StatefulSet" else {"suspend": True}
    # The uid in a patch is a precondition: on another object of the name it is a conflict.
    body = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": spec}
    check(await namespaced.client.patch(namespaced.path_of(workload), body), "suspended", workload)


async def kill_pods(namespaced: NamespacedClient, objects: RunObjects) -> None:
    """Kills a run's pods without a grace period; `objects` are those last seen."""
    own = objects.every_pod()
    owners = {objects.uid, *(pod.owner for pod in own)}
    earlier = [pod for pod in objects.terminating() if pod.owner in owners]
    for pod in {pod.uid: pod for pod in (*own, *earlier)}.values():
        if not pod.deleted:
            await kill_pod(namespaced, pod.name, pod.uid)


async def kill_pod(namespaced: NamespacedClient, name: str, uid: str) -> None:
    """Deletes a pod without the confirmation of its node, which a lost node never sends."""
    options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}
    pod = {"kind": "Pod", "metadata": {"name": name}}
    check(await namespaced.client.delete(namespaced.one(PODS, name), options), "deleted", pod)


async def release_pod(namespaced: NamespacedClient, name: str, uid: str) -> None:
    """Sets the phase of a lost node's pod to Failed and deletes the pod, so that the gang can start on another node.

    A Job with a podFailurePolicy keeps a pod by a finalizer, even if it is deleted by force, until its phase is Failed,
    which the kubelet normally writes (kubernetes v1.36 pkg/controller/job/job_controller.go). The pod garbage collector
    does the same for nodes that are out of service (pkg/controller/podgc; executed).
    """
    pod = {"kind": "Pod", "metadata": {"name": name}}
    failed = {"metadata": {"uid": uid}, "status": {"phase": "Failed"}}
    check(await namespaced.client.patch(f"{namespaced.one(PODS, name)}/status", failed), "released", pod)
    await kill_pod(namespaced, name, uid)


def check(reply: Reply, what: str, manifest: Manifest) -> bool:
    """Whether a request was accepted; False if the object no longer exists, or another one has its name.

    `what` completes error messages, such as `deleted`.
    """
    if reply.accepted or reply.status in (404, 409) or _uid_differs(reply):
        return reply.accepted
    reason, remedy = reply.message.rstrip(".") or reply.status, "; see stepset rbac" if lacks_permission(reply) else ""
    raise InfrastructureError(f"{manifest['kind']} {manifest['metadata']['name']} cannot be {what}: {reason}{remedy}")


def _uid_differs(reply: Reply) -> bool:
    """Whether the object has another uid than the patch: 422 for custom resources; built-in ones reply 409."""
    causes = (reply.body.get("details") or {}).get("causes") or ()
    return reply.status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes)
