"""Creates the watcher of a run.

If the server refuses to create the watcher, the run starts without the watcher. The run's status contains a note with
the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply
from stepset.backends.kubernetes.api.resources import JOBS, PODS, SERVICE_ACCOUNTS, Manifest
from stepset.backends.kubernetes.orphans.watcher import PLACEMENT, watcher
from stepset.backends.kubernetes.submit.pod_changes import ChangePod, with_changed_pods
from stepset.backends.kubernetes.submit.refusals import already_exists
from stepset.backends.orphan_policy import UNAVAILABLE, OrphanStop, OwnerPod
from stepset.targets.pod_templates import templates_of
from stepset.targets.rbac import ORPHAN_ACCOUNT


def image_and_placement(pods_of: Manifest, image: str | None) -> dict[str, Any]:
    """Returns the image and the placement of the training pods of the first group.

    Args:
        pods_of: the object that contains the pod templates: the workload, or the TrainingRuntime of a TrainJob.
        image: the image of the pods. For a TrainJob, the pod templates do not contain the image.
    """
    spec = templates_of(pods_of)[0]["spec"]
    return {"image": image, **{key: spec.get(key) for key in PLACEMENT}}


async def create_watcher(
    namespaced: NamespacedClient,
    workload: Manifest,
    training: Mapping[str, Any],
    orphan: OrphanStop,
    change_pod: ChangePod | None = None,
) -> tuple[str, ...]:
    """Creates the watcher of a run if no watcher exists. If the server refuses the watcher, returns a note.

    `change_pod` is applied to the watcher's pod. The function `watcher` describes the other arguments.

    Raises InfrastructureError if the server cannot be reached.
    """
    if isinstance(orphan.owner, OwnerPod):
        pod = await namespaced.client.get(namespaced.one(PODS, orphan.owner.name))
        if not pod.accepted or pod.body["metadata"]["uid"] != orphan.owner.uid:
            where = f"pod {orphan.owner.name} of this process is not in namespace {namespaced.namespace} of the run"
            return (_unavailable(namespaced, pod) if lacks_permission(pod) else f"{UNAVAILABLE}: {where}",)
    account = await namespaced.client.get(namespaced.one(SERVICE_ACCOUNTS, ORPHAN_ACCOUNT))
    if not account.accepted:
        return (_unavailable(namespaced, account),)
    job: Manifest = watcher(workload, training, orphan)
    if change_pod is not None:
        job = with_changed_pods(job, change_pod)
    reply = await namespaced.client.post(namespaced.all(JOBS), job, {"fieldManager": "stepset"})
    if reply.accepted or already_exists(reply):
        return ()
    return (_unavailable(namespaced, reply),)


def _unavailable(namespaced: NamespacedClient, reply: Reply) -> str:
    """Returns the note for a watcher that the server refused.

    If the account lacks a permission, the note contains the command that grants the permission.
    """
    granting = replace(namespaced, grant=replace(namespaced.grant, orphan=True))
    if lacks_permission(reply):
        return f"{UNAVAILABLE}: {granting.missing_permission(reply)}"
    if reply.status == NOT_FOUND:
        command = granting.grant.command(namespaced.namespace, "")
        return f"{UNAVAILABLE}: there is no service account {ORPHAN_ACCOUNT}; have an administrator run: {command}"
    return f"{UNAVAILABLE}: {reply.message.rstrip('.') or f'HTTP {reply.status}'}"
