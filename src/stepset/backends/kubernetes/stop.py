"""Runs and pods ended: suspended, deleted, deleted by force. Always by uid, so that no namesake is ever hit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import PODS
from stepset.backends.kubernetes.refusals import may_not
from stepset.errors import InfrastructureError
from stepset.targets.identity import QUEUE_LABEL
from stepset.watch.cluster.objects import RunObjects

Manifest = Mapping[str, Any]


async def delete(site: NamespacedClient, workload: Manifest) -> None:
    """Deletes a run: its workload goes when all of its pods have gone.

    Args:
        site: where.
        workload: as it was read; that it is gone already is no error.

    Raises:
        InfrastructureError: the server cannot be asked, or does not let whoever asks.
    """
    options = {"preconditions": {"uid": workload["metadata"]["uid"]}, "propagationPolicy": "Foreground"}
    check(await site.client.delete(site.path_of(workload), options), "deleted", workload)


def stays_suspended(workload: Manifest) -> bool:
    """Whether `suspend` keeps it: a queue would start it again, and Volcano's jobs cannot be suspended."""
    volcano = workload["apiVersion"].startswith("batch.volcano.sh/")
    return not volcano and QUEUE_LABEL not in (workload["metadata"].get("labels") or {})


async def suspend(site: NamespacedClient, workload: Manifest) -> None:
    """Takes a run's pods away and keeps its objects; deletes what would not stay suspended.

    Args:
        site: where.
        workload: as it was read.

    Raises:
        InfrastructureError: the server cannot be asked, or does not let whoever asks.
    """
    if not stays_suspended(workload):
        await delete(site, workload)
        return
    spec = {"replicas": 0} if workload["kind"] == "StatefulSet" else {"suspend": True}
    # The uid in a patch is a precondition: on another object of the name it is a conflict.
    body = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": spec}
    check(await site.client.patch(site.path_of(workload), body), "suspended", workload)


async def kill_pods(site: NamespacedClient, objects: RunObjects) -> None:
    """Ends a run's pods without grace.

    Args:
        site: where.
        objects: the run's, as last seen: a namesake's pods are not among them.

    Raises:
        InfrastructureError: the server cannot be asked, or does not let whoever asks.
    """
    own = objects.every_pod()
    owners = {objects.uid, *(pod.owner for pod in own)}
    earlier = [pod for pod in objects.leaving() if pod.owner in owners]
    for pod in {pod.uid: pod for pod in (*own, *earlier)}.values():
        if not pod.gone:
            await kill_pod(site, pod.name, pod.uid)


async def kill_pod(site: NamespacedClient, name: str, uid: str) -> None:
    """Deletes a pod without waiting for its node to agree, which a lost node never does.

    Args:
        site: where.
        name, uid: of the pod.

    Raises:
        InfrastructureError: the server cannot be asked, or does not let whoever asks.
    """
    options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}
    pod = {"kind": "Pod", "metadata": {"name": name}}
    check(await site.client.delete(site.one(PODS, name), options), "deleted", pod)


async def release_pod(site: NamespacedClient, name: str, uid: str) -> None:
    """Takes a lost node's pod away from it, so that the gang can start elsewhere.

    A Job with a podFailurePolicy keeps a pod, deleted by force or not, until its phase says that it failed, which is
    the kubelet's to say; the pod's own finalizer is the Job's (kubernetes v1.36 pkg/controller/job/job_controller.go,
    the same as its pod garbage collector does for nodes that are out of service: pkg/controller/podgc; executed).

    Args:
        site: where.
        name, uid: of the pod.

    Raises:
        InfrastructureError: the server cannot be asked, or does not let whoever asks.
    """
    pod = {"kind": "Pod", "metadata": {"name": name}}
    failed = {"metadata": {"uid": uid}, "status": {"phase": "Failed"}}
    check(await site.client.patch(f"{site.one(PODS, name)}/status", failed), "released", pod)
    await kill_pod(site, name, uid)


def check(reply: Reply, what: str, manifest: Manifest) -> bool:
    """Returns whether a request was accepted; False if the object is gone, or another has its name.

    Args:
        reply: to the request.
        what: what the request was to do, such as `deleted`.
        manifest: the object.

    Raises:
        InfrastructureError: the server refused.
    """
    if reply.accepted or reply.status in (404, 409) or _another(reply):
        return reply.accepted
    message = " ".join(str(reply.body.get("message", "")).split())[:300].rstrip(".")
    remedy = "; see stepset rbac" if may_not(reply) else ""
    raise InfrastructureError(
        f"{manifest['kind']} {manifest['metadata']['name']} cannot be {what}: {message or reply.status}{remedy}"
    )


def _another(reply: Reply) -> bool:
    """Whether the uid in a patch was not the object's; custom resources call that invalid, others a conflict."""
    causes = (reply.body.get("details") or {}).get("causes") or ()
    return reply.status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes)
