"""Detects resources that an API server would reject in a pod.

Source: kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateContainerResourceName,
ValidateResourceRequirements, validateResourceQuantityValue).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from stepset.spec.quantity import parse_quantity
from stepset.spec.resources import Resources
from stepset.targets.validation.syntax import is_label_key

_HUGE_PAGES = "hugepages-"
_QUOTA_PREFIX = "requests."


def resource_problems(resources: Resources, field: str) -> Iterator[str]:
    """Yields one line for each problem.

    Args:
        field: the path of the resources in the job file.
    """
    requests, limits = resources.requests, resources.limits
    if requests == limits and not any("/" in name or _is_huge_page(name) for name in requests):
        return  # only devices and huge pages have further rules
    for name in dict.fromkeys((*requests, *limits)):
        yield from _name(name, field)
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            yield from _amount(name, amount, f"{field}.{kind}" if requests != limits else field)
    for name, request in requests.items():
        limit = limits.get(name)
        if limit is not None and parse_quantity(request) > parse_quantity(limit):
            yield f"{field}: the request {name}: {request} is more than the limit {limit}; raise the limit"
        whole = "/" in name or _is_huge_page(name)
        if whole and (limit is None or parse_quantity(request) != parse_quantity(limit)):
            yield f"{field}: {name} cannot be overcommitted; make request and limit equal"
    names = requests.keys() | limits.keys()
    if any(_is_huge_page(name) for name in names) and not names & {"cpu", "memory"}:
        yield f"{field}: huge pages require cpu or memory; give one of them, too"


def _name(name: str, field: str) -> Iterator[str]:
    if _is_huge_page(name):
        if not _page_size(name):
            yield f"{field}: {name!r} does not contain the size of the pages; write it like hugepages-2Mi"
    elif "/" in name and (not is_label_key(_QUOTA_PREFIX + name) or name.startswith(_QUOTA_PREFIX)):
        yield f"{field}: {name!r} is not a resource name that Kubernetes accepts; write it like vendor.example/name"


def _amount(name: str, amount: str, field: str) -> Iterator[str]:
    number = parse_quantity(amount)
    if _is_huge_page(name):
        size = _page_size(name)
        if size and (not number or number % size):
            yield f"{field}: {name}: {amount} is not a multiple of the page size; give a multiple of it"
    elif "/" in name and number != number.to_integral_value():
        yield f"{field}: {name}: {amount} is not a whole number; devices cannot be divided; give a whole number"


def _is_huge_page(name: str) -> bool:
    return name.startswith(_HUGE_PAGES) and "/" not in name


def _page_size(name: str) -> Decimal:
    """Returns the size of a huge page in bytes. The size is a part of the resource's name.

    If the name is invalid, returns 0.
    """
    try:
        return parse_quantity(name.removeprefix(_HUGE_PAGES))
    except ValueError:
        return Decimal(0)
