"""Makes the workload of an applied run the owner of the other objects of the run.

A submission makes the workload the owner of these objects. If a user applies the output of `stepset render` instead,
the objects have no owner, so Kubernetes would keep the objects when the workload is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.resources import CONFIG_MAPS, Manifest, Resource, resource_for
from stepset.targets.metadata import RUN, SUBMITTED_BY
from stepset.targets.names import ssh_secret
from stepset.targets.pod_templates import own_config_maps, templates_of, volumes_in
from stepset.targets.workload_kinds import WorkloadKind, workload_kind
from stepset.unstructured import part, rows, text

_log = logging.getLogger(__name__)

_SERVICES = Resource("", "v1", "services")
_NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")


def owned_by(metadata: Manifest, workload: Manifest) -> dict[str, Any]:
    """Returns `{"metadata": ...}` with the workload as the owner."""
    about = workload["metadata"]
    owner = {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": about["name"],
        "uid": about["uid"],
        # Many clusters, such as OpenShift, require an additional permission to block an owner's deletion.
        "blockOwnerDeletion": False,
    }
    return {"metadata": {**metadata, "ownerReferences": [owner]}}


async def own_applied_objects(namespaced: NamespacedClient, workload: Manifest) -> None:
    """Makes a workload the owner of the objects that were applied together with the workload.

    This function changes an object only if the object has the label of the run and no owner. If the server refuses a
    request, the function logs a warning. If stepset has submitted the run, the function sends no request.
    """
    metadata, kind = workload["metadata"], workload_kind(workload)
    if "labels" not in metadata or SUBMITTED_BY in part(metadata, "annotations"):
        return
    run, templates = str(metadata["name"]), resource_for(kind.templates)
    holder = await namespaced.client.get(namespaced.one(templates, run))  # an item of a list may lack the templates
    if not holder.accepted:
        return
    for resource, name in _companions(kind, holder.body, run):
        await _own(namespaced, resource, name, workload)
    if any(text(part(each, "secret"), "secretName") == ssh_secret(run) for each in volumes_in(holder.body["spec"])):
        _warn(namespaced, "secrets", ssh_secret(run), "the minimal Role does not permit changes of Secrets")


def _companions(kind: WorkloadKind, holder: Manifest, run: str) -> Iterator[tuple[Resource, str]]:
    """Yields the resource and the name of each object that may belong to a run.

    `holder` is the object with the pod templates.
    """
    spec = part(holder, "spec")
    if kind.templates != kind.api:
        yield resource_for(kind.templates), run
    for name in own_config_maps(spec, run):
        yield CONFIG_MAPS, name
    if kind.service:
        template = templates_of(holder)[0]
        yield _SERVICES, text(spec, "serviceName") or text(part(template, "spec"), "subdomain") or run
    yield _NETWORK_POLICIES, run


async def _own(namespaced: NamespacedClient, resource: Resource, name: str, workload: Manifest) -> None:
    found = await namespaced.client.get(namespaced.one(resource, name))
    if lacks_permission(found) and resource != _NETWORK_POLICIES:  # most runs have no NetworkPolicy
        _warn(namespaced, resource.plural, name, found.message)
    metadata = part(found.body, "metadata")
    of_run = text(part(metadata, "labels"), RUN) == workload["metadata"]["name"]
    if not found.accepted or not of_run or rows(metadata, "ownerReferences"):
        return
    body = owned_by({"uid": metadata["uid"]}, workload)
    changed = await namespaced.client.patch(namespaced.one(resource, name), body)
    if not changed.accepted:
        _warn(namespaced, resource.plural, name, changed.message)


def _warn(namespaced: NamespacedClient, plural: str, name: str, why: str) -> None:
    command = f"kubectl delete {plural} {name} -n {namespaced.namespace}"
    _log.warning("an object of the run remains: %s %s, because %s; delete it: %s", plural, name, why, command)
