"""Deletes the objects of abandoned submissions. A submission is abandoned if it was interrupted and not continued."""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.resources import (
    CONFIG_MAPS,
    PODS,
    WORKLOADS,
    Manifest,
    Resource,
    resource_for,
)
from stepset.backends.kubernetes.find import listed
from stepset.backends.kubernetes.submit.submission import STARTED
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import InfrastructureError
from stepset.targets.metadata import RUN, SUBMISSION
from stepset.targets.pod_templates import own_config_maps
from stepset.targets.workload_kinds import WORKLOAD_KINDS
from stepset.unstructured import part, rows, text, time_of
from stepset.watch.cluster.ownership import is_run

HALF_SUBMITTED_AFTER = 600
"""The age in seconds at which an incomplete submission is treated as abandoned."""


async def remove_half_submitted(namespaced: NamespacedClient, target: str) -> list[str]:
    """Deletes the objects of abandoned submissions, and returns the names of the runs.

    The age of a submission is measured by the server's clock. A run may have the label of an incomplete submission
    although the run's pods are running. Therefore this function does not delete a run in two cases:

    - A pod of the run has started.
    - All ConfigMaps of the run exist. A submission creates the ConfigMaps last.
    """
    removed = []
    for resource in dict.fromkeys((WORKLOADS[target], resource_for(WORKLOAD_KINDS[target].templates))):
        reply = await namespaced.client.get(namespaced.all(resource), {"labelSelector": f"{SUBMISSION}={STARTED}"})
        for each in rows(reply.body, "items") if reply.accepted else ():
            metadata = part(each, "metadata")
            name, uid, created = text(metadata, "name"), text(metadata, "uid"), time_of(metadata, "creationTimestamp")
            if reply.date is None or created is None or reply.date - created < HALF_SUBMITTED_AFTER:
                continue
            if not (name and uid and is_run(each)) or await _may_run(namespaced, target, resource, each):
                continue
            options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
            await namespaced.client.delete(namespaced.one(resource, name), options)
            removed.append(name)
    return removed


async def _may_run(namespaced: NamespacedClient, target: str, resource: Resource, found: Manifest) -> bool:
    """Returns whether a pod of a run has started or can start. If the answer is unknown, returns True.

    A pod cannot start if it needs a ConfigMap that does not exist. A pod that waits for an image or a node, for
    example, can start later.

    Args:
        found: the workload of the run, or the object with its pod templates.
        resource: the kind of `found`.
    """
    name = text(part(found, "metadata"), "name")
    selected = Collection(PODS.path(namespaced.namespace), {"labelSelector": f"{RUN}={name}"})
    try:
        pods = [each.object for each in await listed(namespaced, selected)]
    except InfrastructureError:
        return True
    if any(map(_has_started, pods)):
        return True
    specs = [found.get("spec")]
    templates = resource_for(WORKLOAD_KINDS[target].templates)
    if templates != WORKLOADS[target]:
        reply = await namespaced.client.get(namespaced.one(templates, name))
        if not (reply.accepted or reply.lacks_object):
            return True
        specs.append(reply.body.get("spec"))
    mounted = sorted({each for spec in specs for each in own_config_maps(spec, name)})
    replies = [await namespaced.client.get(namespaced.one(CONFIG_MAPS, each)) for each in mounted]
    if not mounted and resource == WORKLOADS[target]:
        return True  # pods without a ConfigMap can start at any time
    return bool(replies or pods) and not any(reply.lacks_object for reply in replies)


def _has_started(pod: Manifest) -> bool:
    """Returns whether a container of a pod was started."""
    status = part(pod, "status")
    containers = [*rows(status, "containerStatuses"), *rows(status, "initContainerStatuses")]
    states = [part(each, name) for each in containers for name in ("state", "lastState")]
    ran = any("running" in each or "terminated" in each for each in states)
    return ran or text(status, "phase") not in ("", "Pending")
