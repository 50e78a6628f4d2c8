"""A plan's variables as a container's `env`, and as the agent's variables for each process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepset.plan.model import EnvEntry
from stepset.plan.values import Attempt, FieldValue, NodeRank, Resolver, SecretValue, Text, Value, resolve
from stepset.targets.names import InAgent, InManifest, PodNames


def container_env(
    entries: Iterable[EnvEntry], names: PodNames, rank_field: str | None, attempt_field: str | None
) -> list[dict[str, Any]]:
    """`env` of a container, in the plan's order.

    `rank_field` is the pod's field with its index in the group, `attempt_field` that with the number of restarts; None
    if there is no such field.
    """
    rows = []
    for entry in entries:
        value: Value | None = entry.value
        if isinstance(value, Text) and value.known_in_pod:
            value = entry.pod_value
        if value is not None:
            rows.append({"name": entry.name, **_source(value, names, rank_field, attempt_field)})
    return rows


def _source(value: Value, names: PodNames, rank_field: str | None, attempt_field: str | None) -> dict[str, Any]:
    if isinstance(value, SecretValue):
        return {"valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
    if isinstance(value, FieldValue):
        return _field(value.path)
    if value.parts == (NodeRank(),) and rank_field:
        return _field(rank_field)
    if value.parts == (Attempt(),):
        return _field(attempt_field) if attempt_field else {"value": "0"}
    return {"value": resolve(value, InManifest(names))}


def _field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def process_env(entries: Iterable[EnvEntry], names: Resolver) -> dict[str, str]:
    """Variables that differ between the processes of a pod, for the agent's configuration; places as `{rank}` etc."""
    return {
        entry.name: resolve(entry.value, InAgent(names))
        for entry in entries
        if isinstance(entry.value, Text) and entry.value.known_in_pod
    }
