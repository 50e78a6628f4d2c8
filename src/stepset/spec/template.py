"""What a job's `pod_template` says about the training container, where that matters before there are manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODE = "node"
"""The training container's name, and that of the pods of the world."""


def node_container(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The training container of a pod template (or bare pod spec); empty where it says nothing about it."""
    spec = pod_template.get("spec", pod_template)
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for container in containers if isinstance(containers, list) else []:
        if isinstance(container, Mapping) and container.get("name") == NODE:
            return container
    return {}


def container_resources(pod_template: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a pod template says the training container asks for.

    Raises:
        ValueError: it is no mapping.
    """
    resources = node_container(pod_template).get("resources") or {}
    if not isinstance(resources, Mapping):
        raise ValueError(f"{resources!r} is not a mapping; write {{limits: {{...}}, requests: {{...}}}}")
    return resources


def node_env_names(pod_template: Mapping[str, Any]) -> list[str]:
    """Names of the variables a pod template sets in the training container."""
    env = node_container(pod_template).get("env")
    return [str(e.get("name")) for e in env if isinstance(e, Mapping)] if isinstance(env, list) else []
