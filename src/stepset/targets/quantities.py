"""Sums of Kubernetes quantities: the requests of a gang of pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from stepset.spec.quantity import parse_quantity

_BINARY = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))

Amounts = dict[str, Decimal]


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """The requests of a pod, as the scheduler counts them.

    The sum of its containers, or its largest init container if that is more. A limit without a request counts, because
    the API server makes it the request.

    Source: kubernetes v1.36 pkg/api/v1/resource/helpers.go (PodRequests).
    """
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers", []):
        amounts = _requests(container)
        if container.get("restartPolicy") == "Always":  # a sidecar keeps running
            running = _plus(running, amounts)
            amounts = running
        else:
            amounts = _plus(running, amounts)
        peak = _most(peak, amounts)
    for container in spec.get("containers", []):
        running = _plus(running, _requests(container))
    overhead = {name: parse_quantity(str(value)) for name, value in spec.get("overhead", {}).items()}
    return _plus(_most(peak, running), overhead)


def total(parts: Iterable[tuple[Amounts, int]]) -> dict[str, str]:
    """Returns the sum of amounts times counts, as quantities sorted by name."""
    amounts: Amounts = {}
    for each, count in parts:
        amounts = _plus(amounts, {name: value * count for name, value in each.items()})
    return {name: format_quantity(amounts[name]) for name in sorted(amounts) if amounts[name]}


def format_quantity(amount: Decimal) -> str:
    """The shortest exact notation of an amount.

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
