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


async def quota_lines(
    client: Client, namespace: str, pods: PodSpecs, *, together: bool
) -> tuple[list[str], list[str]] | None:
    """Returns the problems and the notes about the quotas of a namespace, as one line for each quota and resource.

    If all pods of a run together exceed a quota, the line is a problem. If some pods can run without the others
    (`together` is False), the line is a note. If only the unused part of a quota is too small, the line is a note, too.

    Quotas with scopes are not compared, because they apply only to some pods. If the account cannot list the quotas,
    returns None.

    Raises InfrastructureError if the server cannot be reached.
    """
    reply = await client.get(RESOURCE_QUOTAS.path(namespace))
    if not reply.accepted:
        return None
    needed = _needed(pods)
    quotas = [each for each in rows(reply.body, "items") if not {"scopes", "scopeSelector"} & part(each, "spec").keys()]
    lines = [line for quota in quotas for line in _lines(quota, needed)]
    return (
        [line for line, never in lines if never and together],
        [line for line, never in lines if not (never and together)],
    )


def cluster_queue_lines(queue: Manifest, pods: PodSpecs, *, partial: bool = False) -> tuple[list[str], list[str]]:
    """Returns the problems and the notes about the quota of a queue, as one line for each resource.

    The line is a problem if all pods of a run together request more than the limit of the queue. If Kueue may admit
    only a part of the pods (`partial`), the line is a note. The line is also a note if the queue has no quota for a
    requested resource. Kueue does not admit such a run (kueue v0.18.2 pkg/scheduler/flavorassigner/flavorassigner.go),
    unless its configuration excludes the resource.

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
    exceeded = [
        f"ClusterQueue {name}: all pods of the run need {resource} {format_quantity(amount)} together, but the quota"
        f" is {format_quantity(limits[resource])}, so Kueue can never admit the run; request less, or have the quota"
        " raised"
        for resource, amount in needed.items()
        if resource in limits and amount > limits[resource]
    ]
    return ([], uncovered + exceeded) if partial else (exceeded, uncovered)


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


def _lines(quota: Manifest, needed: Mapping[str, Decimal]) -> Iterator[tuple[str, bool]]:
    """Yields a line for each resource of which a quota is too small, and whether the whole quota is too small."""
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
            never = "so some pods can never start; request less, or have the quota raised"
            yield f"{requested}, but {allowed}, {never}", True
        elif amount > free:
            left = f"{format_quantity(max(free, Decimal(0)))} of {format_quantity(limit)} is free"
            yield f"{requested}, and {left}, so some pods start only after other pods have been deleted", False
