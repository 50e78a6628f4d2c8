"""Reads the training container's settings in a job's `pod_template` before manifests are rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.unstructured import part, rows

NODE = "node"
"""Name of the training container, and of the group of pods in the training world."""

_READ_ONLY = frozenset({"secret", "configMap", "projected", "downwardAPI"})
"""Types of volumes that no process writes to."""


def is_whole(pod_template: Mapping[str, Any]) -> bool:
    """Whether `pod_template` is a whole pod template, and not only its `spec`."""
    return "spec" in pod_template or "metadata" in pod_template


def pod_spec(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `spec` of a pod template, or the bare pod spec; empty if it is missing or not a mapping."""
    return part(pod_template, "spec") if is_whole(pod_template) else pod_template


def node_container(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The training container of a pod template (or bare pod spec); empty if there is none."""
    if not pod_template:
        return {}
    return next((each for each in rows(pod_spec(pod_template), "containers") if each.get("name") == NODE), {})


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
    return part(pod_template, "metadata", "annotations")


def node_env_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a pod template sets in the training container."""
    return [str(each.get("name")) for each in rows(node_container(pod_template), "env")]


def node_secret_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a pod template sets in the training container to keys of Secrets."""
    env = rows(node_container(pod_template), "env")
    return [str(row.get("name")) for row in env if _refers_to_secret(row.get("valueFrom"))]


def writable_mounts(pod_template: Mapping[str, Any]) -> list[str]:
    """Paths at which the training container mounts volumes that it may write to."""
    volumes = rows(pod_spec(pod_template), "volumes")
    writable = {volume.get("name") for volume in volumes if not _READ_ONLY & volume.keys()}
    return [
        mount["mountPath"]
        for mount in rows(node_container(pod_template), "volumeMounts")
        if isinstance(mount.get("mountPath"), str) and mount.get("name") in writable and not mount.get("readOnly")
    ]


def _refers_to_secret(source: Any) -> bool:
    return isinstance(source, Mapping) and "secretKeyRef" in source
