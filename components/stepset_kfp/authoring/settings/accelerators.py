"""Checks the accelerators that the settings of a task request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset_kfp.authoring.encoding import has_runtime_value

if TYPE_CHECKING:
    from kfp.dsl.structures import ResourceSpec

_EXAMPLE = 'set_accelerator_type("nvidia.com/gpu")'


def accelerator_notes(resources: ResourceSpec, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note if each node has more accelerators than processes.

    Raises BadInputError if the type of the accelerators is missing or is not the name of a Kubernetes resource.

    Args:
        resources: the resources of the task.
        fields: the fields of the job.
    """
    name, count = resources.accelerator_type, resources.accelerator_count
    if count is None or count == "0" or has_runtime_value(count) or has_runtime_value(name):
        return
    if name is None:
        raise BadInputError(f"set_accelerator_limit({count}) has no effect without a type; call {_EXAMPLE}, too")
    if "/" not in name:
        raise BadInputError(
            f"set_accelerator_type: {name!r} is not the name of a Kubernetes resource; call {_EXAMPLE}, and select"
            " a GPU model with a node selector"
        )
    # If the job has resources, stepset ignores the resources of the task (task_config.py).
    processes = None if fields.get("resources_per_node") else fields.get("procs_per_node")
    if isinstance(processes, int) and 0 < processes < int(count):
        yield (
            f"procs_per_node is {processes}, but each node has {count} accelerators; set procs_per_node to {count} or"
            " auto, unless each process uses several accelerators"
        )
