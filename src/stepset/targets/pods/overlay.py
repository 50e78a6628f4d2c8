"""The job's `pod_template` as a patch of the pods of one group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.plan.model import PodGroup
from stepset.spec.job import TrainingJob
from stepset.spec.template import is_whole
from stepset.targets.names import CONTAINER
from stepset.targets.pods.placement import PLACEMENT_FIELDS


def overlay_of(job: TrainingJob, group: PodGroup) -> dict[str, Any]:
    """`pod_template` as a pod template, for the pods of one group.

    `pod_template` is a whole template or only its `spec`. The resources in it are those of a node and determine
    procs_per_node; pods outside the world do not get them, nor the fields that place the nodes.
    """
    overlay = job.pod_template
    if not overlay:
        return {}
    template = dict(overlay) if is_whole(overlay) else {"spec": overlay}
    spec = template.get("spec")
    if group.in_world or not isinstance(spec, Mapping):
        return template
    template["spec"] = {key: value for key, value in spec.items() if key not in PLACEMENT_FIELDS}
    containers = spec.get("containers")
    if not isinstance(containers, list):  # `null` removes a list; other types are reported later
        return template
    without_resources = [
        {k: v for k, v in row.items() if k != "resources"}
        if isinstance(row, Mapping) and row.get("name") == CONTAINER
        else row
        for row in containers
    ]
    return {**template, "spec": {**template["spec"], "containers": without_resources}}
