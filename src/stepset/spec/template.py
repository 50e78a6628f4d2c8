"""Reads settings in a job's `pod_template`, in particular those of the training container."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from stepset.unstructured import part, rows

NODE = "node"
"""The name of the container that trains. The group of pods that train has the same name."""

_READ_ONLY = frozenset({"secret", "configMap", "projected", "downwardAPI"})
"""The types of volumes that are always read-only."""

_DELETED_WITH_POD = frozenset({"emptyDir", "ephemeral"})
"""The types of volumes that Kubernetes deletes together with the pod."""

_ENV_SOURCES = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
"""A mapping from the fields of `envFrom` to the kinds of the referenced objects."""


def is_whole(pod_template: Mapping[str, Any]) -> bool:
    """Returns whether `pod_template` is a complete pod template instead of only the `spec` of a pod template."""
    return "spec" in pod_template or "metadata" in pod_template


def pod_spec(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the pod spec in a job's `pod_template`. If there is no valid pod spec, the result is empty."""
    return part(pod_template, "spec") if is_whole(pod_template) else pod_template


def node_container(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the training container in a job's `pod_template`. If the container is missing, the result is empty."""
    if not pod_template:
        return {}
    return next((each for each in rows(pod_spec(pod_template), "containers") if each.get("name") == NODE), {})


def node_place(pod_template: Mapping[str, Any]) -> str:
    """Returns the path of the training container in the job file."""
    return f"{'pod_template.spec' if is_whole(pod_template) else 'pod_template'}.containers.{NODE}"


def beside_node(pod_template: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the containers beside the training container, with their paths in the job file."""
    place = node_place(pod_template).removesuffix(NODE)
    for row in rows(pod_spec(pod_template), "containers"):
        if row.get("name") not in (None, NODE) and "$patch" not in row:
            yield f"{place}{row['name']}", row


def container_resources(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the resources of the training container in a job's `pod_template`.

    If the resources are null, the requests and the limits of the result are null.

    Raises ValueError if the resources are not a mapping.
    """
    container = node_container(pod_template)
    resources = container.get("resources", {})
    if resources is None:
        return {"requests": None, "limits": None}
    if not isinstance(resources, Mapping):
        raise ValueError(f"{resources!r} is not a mapping; write {{limits: {{...}}, requests: {{...}}}}")
    return resources


def node_claims(pod_template: Mapping[str, Any]) -> list[str]:
    """Returns the names of the training container's claims for dynamic resource allocation."""
    resources = node_container(pod_template).get("resources")
    return [str(each.get("name")) for each in rows(resources, "claims")] if isinstance(resources, Mapping) else []


def pod_annotations(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the annotations in a job's `pod_template`."""
    return part(pod_template, "metadata", "annotations")


def node_env_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Returns the names of the variables that `pod_template` sets in the training container."""
    return [str(each.get("name")) for each in rows(node_container(pod_template), "env")]


def without_node_env(pod_template: Mapping[str, Any], kept: Container[str]) -> dict[str, Any]:
    """Returns a copy of `pod_template` in which most variables of the training container are removed.

    The field `envFrom` is removed. The field `env` keeps only the variables with names in `kept`.
    """

    def changed(row: Any) -> Any:
        if not isinstance(row, Mapping) or row.get("name") != NODE:
            return row
        variables = [each for each in rows(row, "env") if each.get("name") in kept]
        return {**{key: value for key, value in row.items() if key not in ("env", "envFrom")}, "env": variables}

    spec = pod_spec(pod_template)
    containers = spec.get("containers")
    if not isinstance(containers, list):
        return dict(pod_template)
    spec = {**spec, "containers": [changed(row) for row in containers]}
    return {**pod_template, "spec": spec} if is_whole(pod_template) else spec


def node_secret_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Returns the names of those variables in the training container's `env` whose values come from Secrets."""
    env = rows(node_container(pod_template), "env")
    return [str(row.get("name")) for row in env if "secretKeyRef" in part(row, "valueFrom")]


def node_env_from(pod_template: Mapping[str, Any]) -> list[str]:
    """Returns descriptions of the objects in the training container's `envFrom`, such as `Secret hub`."""
    found = []
    for row in rows(node_container(pod_template), "envFrom"):
        prefix = f", with the prefix {row['prefix']}" if row.get("prefix") else ""
        for field, kind in _ENV_SOURCES.items():
            if isinstance(source := row.get(field), Mapping):
                found.append(f"{kind} {source.get('name')}{prefix}")
    return found


def writable_mounts(pod_template: Mapping[str, Any], *, lasting: bool = False) -> list[str]:
    """Returns the mount paths of the training container's writable volumes.

    Args:
        lasting: whether to ignore volumes that are deleted together with the pod.
    """
    excluded = _READ_ONLY | _DELETED_WITH_POD if lasting else _READ_ONLY
    volumes = rows(pod_spec(pod_template), "volumes")
    writable = {volume.get("name") for volume in volumes if not excluded & volume.keys()}
    return [
        mount["mountPath"]
        for mount in rows(node_container(pod_template), "volumeMounts")
        if isinstance(mount.get("mountPath"), str) and mount.get("name") in writable and not mount.get("readOnly")
    ]
