"""Reads the training container's settings in a job's `pod_template` before manifests are rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODE = "node"
"""Name of the training container, and of the group of pods in the training world."""

_READ_ONLY = frozenset({"secret", "configMap", "projected", "downwardAPI"})
"""Types of volumes that no process writes to."""

_ENV_SOURCES = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
"""Fields of an entry of `envFrom`, with the kind of the object that they name."""


def node_container(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The training container of a pod template (or bare pod spec); empty if there is none."""
    if not pod_template:
        return {}
    return next((each for each in rows(_spec(pod_template), "containers") if each.get("name") == NODE), {})


def container_resources(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The resources of a pod template's training container; ValueError if they are not a mapping."""
    resources = node_container(pod_template).get("resources")
    if not resources:
        return {}
    if not isinstance(resources, Mapping):
        raise ValueError(f"{resources!r} is not a mapping; write {{limits: {{...}}, requests: {{...}}}}")
    return resources


def node_claims(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the claims for dynamic resource allocation of a pod template's training container."""
    resources = node_container(pod_template).get("resources")
    return [str(each.get("name")) for each in rows(resources, "claims")] if isinstance(resources, Mapping) else []


def pod_annotations(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The annotations of a pod template; empty if it has none."""
    metadata = pod_template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def node_env_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a pod template sets in the training container."""
    return [str(each.get("name")) for each in rows(node_container(pod_template), "env")]


def node_secret_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a pod template sets in the training container to keys of Secrets."""
    env = rows(node_container(pod_template), "env")
    return [str(row.get("name")) for row in env if _refers_to_secret(row.get("valueFrom"))]


def node_env_from(pod_template: Mapping[str, Any]) -> list[str]:
    """The objects whose keys a pod template sets as variables of the training container, as `Secret hub`."""
    found = []
    for row in rows(node_container(pod_template), "envFrom"):
        prefix = f", with the prefix {row['prefix']}" if row.get("prefix") else ""
        for field, kind in _ENV_SOURCES.items():
            if isinstance(source := row.get(field), Mapping):
                found.append(f"{kind} {source.get('name')}{prefix}")
    return found


def writable_mounts(pod_template: Mapping[str, Any]) -> list[str]:
    """Paths at which the training container mounts volumes that it may write to."""
    volumes = rows(_spec(pod_template), "volumes")
    writable = {volume.get("name") for volume in volumes if not _READ_ONLY & volume.keys()}
    return [
        mount["mountPath"]
        for mount in rows(node_container(pod_template), "volumeMounts")
        if isinstance(mount.get("mountPath"), str) and mount.get("name") in writable and not mount.get("readOnly")
    ]


def _refers_to_secret(source: Any) -> bool:
    return isinstance(source, Mapping) and "secretKeyRef" in source


def _spec(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = pod_template.get("spec", pod_template)
    return spec if isinstance(spec, Mapping) else {}


def rows(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Returns the mappings in a list, [] if the field is not a list: templates are validated later."""
    found = data.get(name)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
