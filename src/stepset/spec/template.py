"""The settings of the training container in a job's `pod_template` that apply before manifests are rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODE = "node"
"""The training container's name, and that of the pods of the world."""


def node_container(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The training container of a pod template (or bare pod spec); empty if there is none."""
    spec = pod_template.get("spec", pod_template)
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for container in containers if isinstance(containers, list) else []:
        if isinstance(container, Mapping) and container.get("name") == NODE:
            return container
    return {}


def container_resources(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The resources of a pod template's training container; ValueError if they are not a mapping."""
    resources = node_container(pod_template).get("resources") or {}
    if not isinstance(resources, Mapping):
        raise ValueError(f"{resources!r} is not a mapping; write {{limits: {{...}}, requests: {{...}}}}")
    return resources


def node_env_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a pod template sets in the training container."""
    env = node_container(pod_template).get("env")
    return [str(e.get("name")) for e in env if isinstance(e, Mapping)] if isinstance(env, list) else []
