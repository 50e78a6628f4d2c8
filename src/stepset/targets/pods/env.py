"""Converts the variables of a plan to the `env` of a container and to the variables that the agent sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepset.plan.expand import expand, references
from stepset.plan.model import EnvEntry
from stepset.plan.values import Attempt, FieldValue, NodeRank, RendezvousId, Resolver, SecretValue, Text, Value, resolve
from stepset.targets.names import RENDEZVOUS_KEY, InAgent, InManifest, PodNames, agent_config_map


def container_env(
    entries: Iterable[EnvEntry], names: PodNames, rank_field: str | None, attempt_field: str | None
) -> list[dict[str, Any]]:
    """Returns the `env` of a container, in the order of the plan.

    Args:
        rank_field: the field of a pod that contains the index of the pod in its group. None if there is no such field.
        attempt_field: the field of a pod that contains the number of restarts. None if there is no such field.
    """
    rows = []
    in_manifest = InManifest(names)
    for entry in entries:
        value: Value | None = entry.value
        if isinstance(value, Text):
            if len(value.parts) == 1 and isinstance(value.parts[0], str):  # most values have no placeholders
                rows.append({"name": entry.name, "value": value.parts[0]})
                continue
            if value.needs_agent:
                value = entry.pod_value
        if value is not None:
            rows.append(_row(entry.name, value, in_manifest, rank_field, attempt_field))
    return rows


def _row(
    name: str, value: Value, in_manifest: InManifest, rank_field: str | None, attempt_field: str | None
) -> dict[str, Any]:
    if isinstance(value, SecretValue):
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
    if isinstance(value, FieldValue):
        return _from_field(name, value.path)
    place = value.parts[0] if len(value.parts) == 1 else None
    if isinstance(place, NodeRank) and rank_field:
        return _from_field(name, rank_field)
    if isinstance(place, Attempt):
        return _from_field(name, attempt_field) if attempt_field else {"name": name, "value": "0"}
    if isinstance(place, RendezvousId):
        key = {"name": agent_config_map(in_manifest.names.run), "key": RENDEZVOUS_KEY}
        return {"name": name, "valueFrom": {"configMapKeyRef": key}}
    return {"name": name, "value": resolve(value, in_manifest)}


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def process_env(entries: Iterable[EnvEntry], names: Resolver) -> dict[str, str]:
    """Returns the variables that the agent sets for each process. Values can contain references such as `{rank}`."""
    in_agent = InAgent(names)
    return {
        entry.name: resolve(entry.value, in_agent)
        for entry in entries
        if isinstance(entry.value, Text) and entry.value.needs_agent
    }


def known_values(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the values of the variables in a container's `env` that do not depend on the pod or on the cluster.

    References to earlier variables are replaced, as the kubelet replaces them. The result does not contain variables
    from fields or Secrets, and variables that refer to a variable without a known value.
    """
    known: dict[str, str] = {}
    for row in rows:
        name, text = row["name"], row.get("value", "")
        known.pop(name, None)
        if not row.get("valueFrom") and isinstance(text, str) and _refers_only_to(known, text):
            known[name] = expand(text, known)
    return known


def _refers_only_to(known: Mapping[str, str], text: str) -> bool:
    return all(found.name is None or found.name in known for found in references(text))
