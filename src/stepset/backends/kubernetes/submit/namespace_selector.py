"""Checks whether a ClusterQueue admits the workloads of a namespace."""

from __future__ import annotations

import json
from collections.abc import Mapping

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.lookup import get_namespace
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.unstructured import Fields, part, rows, text

_NAME = "kubernetes.io/metadata.name"
"""A label that every namespace has. Its value is the name of the namespace."""


async def excludes(client: Client, cluster_queue: Manifest, namespace: str) -> str:
    """Returns why a ClusterQueue admits no workload of a namespace.

    Returns "" if the ClusterQueue admits them, or if the answer is unknown.

    The labels of the namespace are read only if the selector contains other labels than the name of the namespace. If
    the account cannot read the namespace, the selector is not checked.

    Raises InfrastructureError if the server cannot be reached.
    """
    spec = part(cluster_queue, "spec")
    if spec.get("namespaceSelector") is None:
        why = "the ClusterQueue has no namespaceSelector, so it admits no workload"
    else:
        selector, labels = part(spec, "namespaceSelector"), {_NAME: namespace}
        expressions = rows(selector, "matchExpressions")
        if {*part(selector, "matchLabels"), *(text(each, "key") for each in expressions)} - {_NAME}:
            found = await get_namespace(client, namespace)
            if not found.accepted:
                return ""
            labels |= part(found.body, "metadata", "labels")
        if selects(selector, labels):
            return ""
        why = f"its namespaceSelector {json.dumps(selector)} does not match the labels of the namespace"
    return f"ClusterQueue {text(part(cluster_queue, 'metadata'), 'name')} admits no run of namespace {namespace}: {why}"


def selects(selector: Fields, labels: Mapping[str, object]) -> bool:
    """Returns whether a LabelSelector of Kubernetes selects an object with these labels.

    >>> selects({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}, {"team": "a"})
    True
    """
    equal = all(labels.get(key) == value for key, value in part(selector, "matchLabels").items())
    return equal and all(_holds(each, labels) for each in rows(selector, "matchExpressions"))


def _holds(expression: Fields, labels: Mapping[str, object]) -> bool:
    key, operator, values = text(expression, "key"), text(expression, "operator"), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        return (labels.get(key) in values) is (operator == "In")
    return (key in labels) is (operator == "Exists")
