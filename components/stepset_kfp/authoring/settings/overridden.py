"""Notes about settings of a task that a field of the job replaces or makes useless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask


def overridden_notes(task: PipelineTask, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each setting of a task that the training pods ignore because of a field of the job.

    task_config.py applies the settings of the task. Fields that are known only at run time are not checked.

    Args:
        task: the task.
        fields: the fields of the job, and the other inputs of the task.
    """
    env = fields.get("env")
    if isinstance(env, Mapping) and (both := sorted(_variables(task) & set(env))):
        yield (
            f"{', '.join(both)} {'is' if len(both) == 1 else 'are'} set both in env and by a setting of the task; the"
            " training pods use env"
        )
    own = fields.get("resources_per_node")
    resources = [name for name, value in vars(task.container_spec.resources).items() if value is not None]
    if isinstance(own, Mapping) and set(own) - {"shm"} and resources:
        yield (
            f"resources_per_node replaces all resources of the task, so {', '.join(resources)}"
            f" {'does' if len(resources) == 1 else 'do'} not apply; set the resources in one place"
        )


def _variables(task: PipelineTask) -> set[str]:
    """Returns the names of the environment variables that the settings of a task set."""
    config = task.platform_config.get("kubernetes", {})
    sources = (*config.get("secretAsEnv", ()), *config.get("configMapAsEnv", ()))
    return {*(task.container_spec.env or {}), *(key["envVar"] for each in sources for key in each.get("keyToEnv", ()))}
