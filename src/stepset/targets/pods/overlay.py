"""Converts the job's `pod_template` to a patch for the pods of one group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.plan.model import PodGroup
from stepset.spec.job import TrainingJob
from stepset.spec.parts import Role
from stepset.spec.template import is_whole
from stepset.targets.names import CONTAINER
from stepset.targets.pods.placement import PLACEMENT_FIELDS

_REPLACE = {"$patch": "replace"}


def overlay_of(job: TrainingJob, group: PodGroup) -> dict[str, Any]:
    """Returns the job's `pod_template` as a patch for the pods of one group.

    The patch is a pod template, even if `pod_template` contains only the `spec` of a pod template.

    For nodes, the patch contains all fields. For launchers and roles, the patch does not contain the following fields,
    because they are meant for the nodes:

    - The resources of the container `node`.
    - The fields that select machines for the pods.

    For roles, the patch also does not contain the following fields of the container `node`:

    - The command and the args.
    - The image, if the role sets an image.
    - The variables that the role sets.
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
    if not isinstance(containers, list):  # `null`, which removes the list, or an invalid type, which is reported later
        return template
    rows = [_outside_the_world(row, group.role) for row in containers if group.role is None or row != _REPLACE]
    return {**template, "spec": {**template["spec"], "containers": rows}}


def _outside_the_world(row: Any, role: Role | None) -> Any:
    """Returns a container of `pod_template` without the fields that do not apply to a launcher or role.

    Args:
        row: the container in `pod_template`.
        role: the role of the pods. None for a launcher.
    """
    if not isinstance(row, Mapping) or row.get("name") != CONTAINER:
        return row
    kept = {key: value for key, value in row.items() if key != "resources"}
    if role is None:
        return kept
    own = {"command", "args", *(("image",) if role.image else ())}
    kept = {key: value for key, value in kept.items() if key not in own and (key, value) != ("$patch", "replace")}
    if "env" in kept and role.env:
        variables = kept["env"]
        if not isinstance(variables, list):  # `null` would remove the variables of the role
            del kept["env"]
        else:
            kept["env"] = [each for each in variables if each != _REPLACE and not _is_set_by(role, each)]
    return kept


def _is_set_by(role: Role, row: Any) -> bool:
    return isinstance(row, Mapping) and row.get("name") in role.env
