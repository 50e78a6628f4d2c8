"""Adds up the resource requests of pods. For example, a PodGroup contains the total of all its pods."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from decimal import Decimal
from typing import Any

from stepset.spec.quantity import parse_quantity

_BINARY = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))

Amounts = dict[str, Decimal]


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """Returns the resource requests of a pod. The scheduler determines the requests in the same way.

    For each resource, the request of the pod is the larger of the following two amounts:

    - The sum of the requests of all containers.
    - The largest request of an init container.

    If the field `resources` of the pod itself contains the resource, this field takes precedence. If a container has a
    limit for a resource but no request, the limit is used as the request.

    Source: kubernetes v1.36 pkg/api/v1/resource/helpers.go (PodRequests).
    """
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers", []):
        amounts = _plus(running, _requests(container))
        if container.get("restartPolicy") == "Always":  # the init container is a sidecar, which continues to run
            running = amounts
        peak = _most(peak, amounts)
    for container in spec.get("containers", []):
        running = _plus(running, _requests(container))
    amounts = _most(peak, running) | _of_pod(spec.get("resources", {}), {*peak, *running})
    overhead = {name: parse_quantity(str(value)) for name, value in spec.get("overhead", {}).items()}
    return _plus(amounts, overhead)


def pod_limits(spec: Mapping[str, Any]) -> Amounts:
    """Returns the resource limits of a pod, which are determined like its requests.

    Source: kubernetes v1.36 pkg/api/v1/resource/helpers.go (PodLimits).
    """

    def limits_only(container: Mapping[str, Any]) -> dict[str, Any]:
        return {**container, "resources": {"requests": container.get("resources", {}).get("limits", {})}}

    containers = {name: [limits_only(each) for each in spec.get(name, [])] for name in ("initContainers", "containers")}
    return pod_requests({**limits_only(spec), **containers})


def _of_pod(resources: Mapping[str, Any], requested: Container[str]) -> Amounts:
    """Returns the requests in the field `resources` of a pod. These requests replace the requests of the containers.

    If the pod has a limit for a resource that no container requests, the limit is used as the request.
    Source: kubernetes v1.36 pkg/apis/core/v1/defaults.go (defaultPodRequests).

    Args:
        resources: the `resources` of the pod.
    """
    given = {name: value for name, value in resources.get("limits", {}).items() if name not in requested}
    given |= resources.get("requests", {})
    return {name: parse_quantity(str(value)) for name, value in given.items()}


def total(parts: Iterable[tuple[Amounts, int]]) -> dict[str, str]:
    """Returns the total requests of a set of pods, as a mapping from resource names to quantities.

    The mapping is sorted by resource name.

    Args:
        parts: pairs. The first item of a pair is the requests of one pod. The second item is the number of such pods.
    """
    amounts: Amounts = {}
    for each, count in parts:
        amounts = _plus(amounts, {name: value * count for name, value in each.items()})
    return {name: format_quantity(amounts[name]) for name in sorted(amounts) if amounts[name]}


def format_quantity(amount: Decimal) -> str:
    """Formats a number as a Kubernetes quantity.

    A whole number gets the largest suffix with which no precision is lost. Any other number is rounded up to a
    multiple of 0.001.

    >>> format_quantity(Decimal(64 * 2**30)), format_quantity(Decimal("1.5")), format_quantity(Decimal(32))
    ('64Gi', '1500m', '32')
    """
    if amount != amount.to_integral_value():
        return f"{(amount * 1000).to_integral_value(rounding='ROUND_CEILING')}m"
    whole = int(amount)
    for suffix, size in _BINARY:
        if whole and whole % size == 0:
            return f"{whole // size}{suffix}"
    return str(whole)


def _requests(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources", {})
    given = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {name: parse_quantity(str(value)) for name, value in given.items()}


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, Decimal(0)) + other.get(name, Decimal(0)) for name in {**one, **other}}


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, Decimal(0)), other.get(name, Decimal(0))) for name in {**one, **other}}
