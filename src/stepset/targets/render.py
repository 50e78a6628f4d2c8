"""Renders a run in one of the targets, after the preflight checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepset.targets.kinds import job, jobset, statefulset, trainjob, volcano
from stepset.targets.request import RenderRequest
from stepset.targets.validation.preflight import check_request, check_sizes

TARGETS: Mapping[str, Callable[[RenderRequest], list[dict[str, Any]]]] = {
    "jobset": jobset.render,
    "trainjob": trainjob.render,
    "statefulset": statefulset.render,
    "job": job.render,
    "volcano": volcano.render,
}


def render(request: RenderRequest, target: str = "jobset") -> list[dict[str, Any]]:
    """Returns the manifests of a run, equal for equal requests, in the order in which they must be applied.

    Raises BadInputError for an unknown target, or a job that the cluster would refuse.
    """
    check_request(request, target)
    objects = TARGETS[target](request)
    check_sizes(objects)
    return objects
