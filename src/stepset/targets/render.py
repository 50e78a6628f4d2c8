"""Checks a run and renders it as the manifests of a target."""

from __future__ import annotations

from typing import Any

from stepset.targets.kinds import TARGETS
from stepset.targets.request import RenderRequest
from stepset.targets.validation.preflight import check_request, check_sizes


def render(request: RenderRequest, target: str = "jobset") -> list[dict[str, Any]]:
    """Returns the manifests of a run, in the order in which they must be applied.

    Equal requests result in equal manifests. Raises BadInputError if the target is unknown, or if a cluster would
    reject the job.
    """
    check_request(request, target)
    objects = TARGETS[target].render(request)
    check_sizes(objects)
    return objects
