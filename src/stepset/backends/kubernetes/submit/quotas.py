"""Compares the requests of all pods of a run with the ResourceQuotas of the namespace and the quota of a ClusterQueue.

A dry run checks one pod of each group. Therefore the server accepts a run whose pods together exceed a quota. The
server also accepts a run that Kueue can never admit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.resources import RESOURCE_QUOTAS, Manifest
from stepset.spec.quantity import parse_quantity
from stepset.targets.quantities import format_quantity, pod_limits, pod_requests
from stepset.unstructured import part, rows, text

PodSpecs = Sequence[tuple[Mapping[str, Any], int]]
"""The `spec` of one pod of each group, and the number of pods of the group."""

_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""A quota limits the requests of these resources even if the quota omits the prefix `requests.`."""


async def quota_notes(client: Client, namespace: str, pods: PodSpecs) -> list[str] | None:
    """Returns a note for each quota that all pods of a run together exceed.

    Also returns a note for each quota whose unused part is currently too small for the pods.

    Quotas with scopes are not compared, because they apply only to some pods. If the account cannot list the quotas,
    returns None.

    Raises InfrastructureError if the server cannot be reached.
    """
    reply = await client.get(RESOURCE_QUOTAS.path(namespace))
    if not reply.accepted:
        return None
    needed = _needed(pods)
    quotas = [each for each in rows(reply.body, "items") if not {"scopes", "scopeSelector"} & part(each, "spec").keys()]
    return [note for quota in quotas for note in _notes(quota, needed)]


def cluster_queue_notes(queue: Manifest, pods: PodSpecs) -> list[str]:
    """Returns a note for each resource of which all pods of a run together request more than the limit of a queue.

    Also returns a note for each requested resource for which the queue has no quota. Kueue does not admit such a run
    (kueue v0.18.2 pkg/scheduler/flavorassigner/flavorassigner.go), unless its configuration excludes the resource.

    The limit is the sum of `nominalQuota` and `borrowingLimit` of all flavors. A queue in a cohort may borrow any
    amount if a flavor has no `borrowingLimit`. Then the resource is not compared.
    """
    needed: dict[str, Decimal] = defaultdict(Decimal)
    for spec, count in pods:
        needed["pods"] += count
        for name, amount in pod_requests(spec).items():
            needed[name] += amount * count
    spec, name = part(queue, "spec"), text(part(queue, "metadata"), "name")
    borrows = bool(text(spec, "cohortName") or text(spec, "cohort"))  # v1beta2, v1beta1
    limits: dict[str, Decimal] = defaultdict(Decimal)
    for group in rows(spec, "resourceGroups"):
        for quota in (quota for flavor in rows(group, "flavors") for quota in rows(flavor, "resources")):
            borrowed = str(quota.get("borrowingLimit", "Infinity")) if borrows else "0"
            more = Decimal(borrowed) if borrowed == "Infinity" else parse_quantity(borrowed)
            limits[text(quota, "name")] += parse_quantity(str(quota.get("nominalQuota", "0"))) + more
    without = [resource for resource, amount in needed.items() if limits and amount and resource not in limits]
    uncovered = [
        f"ClusterQueue {name}: the queue has no quota for {resource}, so Kueue does not admit the run unless its"
        " configuration excludes the resource; do not request it, have quota added, or use another queue"
        for resource in without
        if resource != "pods"  # counted only if the queue has a quota for pods
    ]
    return uncovered + [
        f"ClusterQueue {name}: all pods of the run need {resource} {format_quantity(amount)} together, but the quota"
        f" is {format_quantity(limits[resource])}, so Kueue can never admit the run; request less, or have the quota"
        " raised"
        for resource, amount in needed.items()
        if resource in limits and amount > limits[resource]
    ]


def _needed(pods: PodSpecs) -> Mapping[str, Decimal]:
    """Returns a mapping from the names of resources in quotas to the total amounts that all pods need.

    Source: kubernetes v1.36 pkg/quota/v1/evaluator/core/pods.go (podComputeUsageHelper).
    """
    found: dict[str, Decimal] = defaultdict(Decimal)
    for spec, count in pods:
        found["pods"] += count
        found["count/pods"] += count
        for name, amount in pod_requests(spec).items():
            found[f"requests.{name}"] += amount * count
            if name in _RESOURCES:
                found[name] += amount * count
        for name, amount in pod_limits(spec).items():
            found[f"limits.{name}"] += amount * count
    return found


def _notes(quota: Manifest, needed: Mapping[str, Decimal]) -> Iterator[str]:
    name = text(part(quota, "metadata"), "name")
    hard, used = part(quota, "spec", "hard"), part(quota, "status", "used")
    for resource, amount in needed.items():
        if resource not in hard:
            continue
        limit = parse_quantity(str(hard[resource]))
        free = limit - parse_quantity(str(used.get(resource, "0")))
        requested = f"ResourceQuota {name}: all pods of the run need {resource} {format_quantity(amount)} together"
        if amount > limit:
            allowed = f"the quota is {format_quantity(limit)}"
            yield f"{requested}, but {allowed}, so some pods can never start; request less, or have the quota raised"
        elif amount > free:
            left = f"{format_quantity(max(free, Decimal(0)))} of {format_quantity(limit)} is free"
            yield f"{requested}, and {left}, so some pods start only after other pods have been deleted"
