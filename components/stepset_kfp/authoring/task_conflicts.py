"""Finds settings of a task that contradict the fields of its job.

task_config.py applies the settings of the task in the step. Fields that are known only at run time are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset.spec.quantity import parse_duration
from stepset_kfp.authoring.encoding import has_runtime_value
from stepset_kfp.authoring.job_check import check_job
from stepset_kfp.task_config import allow_several_nodes

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask
    from kfp.dsl.pipeline_context import Pipeline


def conflict_notes(task: PipelineTask, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each setting of a task that a field of the job replaces, or that contradicts a field.

    Args:
        fields: the fields of the job, and the other inputs of the task.
    """
    config = task.platform_config.get("kubernetes", {})
    env = fields.get("env")
    if isinstance(env, Mapping) and (both := sorted({each["name"] for each in _variables(task)} & set(env))):
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
    scheduling = fields.get("scheduling")
    selector = scheduling.get("node_selector") if isinstance(scheduling, Mapping) else None
    known = selector if isinstance(selector, Mapping) and not has_runtime_value(selector) else {}
    labels = config.get("nodeSelector", {}).get("labels", {})
    if other := sorted(key for key, value in labels.items() if key in known and str(known[key]) != value):
        yield (
            f"{', '.join(other)} {'has' if len(other) == 1 else 'have'} another value in scheduling.node_selector than"
            " in a setting of the task; the training pods use scheduling.node_selector"
        )
    timeout, deadline = config.get("activeDeadlineSeconds"), fields.get("deadline")
    if timeout and (seconds := _seconds(deadline)) is not None and int(timeout) < seconds:
        yield (
            f"set_timeout ends the step after {timeout} s, but the deadline of the training is {deadline}, and the step"
            " also waits for the start of the run; omit set_timeout, or give more time"
        )


def _seconds(deadline: Any) -> int | None:
    """Returns the number of seconds of a deadline. Returns None if the deadline is unknown, missing or invalid."""
    try:
        return None if deadline is None or has_runtime_value(deadline) else parse_duration(deadline)
    except ValueError:  # the step checks the deadline
        return None


def check_variables(task: PipelineTask, arguments: Mapping[str, Any]) -> None:
    """Raises BadInputError if a variable that a setting of the task sets is not valid for the job.

    Args:
        arguments: the inputs of the component, which are valid without the variables.
    """
    if not (variables := [*_variables(task)]):
        return
    try:
        check_job(arguments, on_cluster=True, variables=variables)
    except BadInputError as error:
        raise BadInputError(*(f"setting of the task: {each}" for each in error.problems)) from None


def check_claims(task: PipelineTask, num_nodes: Any, pipeline: Pipeline | None) -> None:
    """Raises BadInputError if several nodes mount a claim that another task creates, and that one node can mount.

    The step checks the access modes of all other claims.

    Args:
        num_nodes: the number of nodes. A number that is known only at run time is not checked.
        pipeline: the pipeline that contains the tasks.
    """
    if pipeline is None or not isinstance(num_nodes, int) or num_nodes < 2:
        return
    for mount in task.platform_config.get("kubernetes", {}).get("pvcMount", ()):
        creator = pipeline.tasks.get(mount.get("taskOutputParameter", {}).get("producerTask"))
        modes = creator.inputs.get("access_modes") if creator is not None else None
        if isinstance(modes, list) and not has_runtime_value(modes) and not allow_several_nodes(modes):
            raise BadInputError(
                f"mount_pvc: {num_nodes} nodes mount the claim of task {creator.name}, but it is {', '.join(modes)};"
                ' create it with access_modes=["ReadWriteMany"]'
            )


def _variables(task: PipelineTask) -> Iterator[dict[str, Any]]:
    """Yields the environment variables that the settings of a task set, in the form of a container's `env`."""
    config = task.platform_config.get("kubernetes", {})
    for name, value in (task.container_spec.env or {}).items():
        yield {"name": name, "value": value}
    for each in config.get("secretAsEnv", ()):
        # The name of the Secret may be known only at run time.
        source = {"name": each.get("secretName", "secret"), "optional": each.get("optional", False)}
        for key in each.get("keyToEnv", ()):
            yield {"name": key["envVar"], "valueFrom": {"secretKeyRef": {**source, "key": key["secretKey"]}}}
    for each in config.get("configMapAsEnv", ()):
        source = {"name": each.get("configMapName", "config-map")}
        for key in each.get("keyToEnv", ()):
            yield {"name": key["envVar"], "valueFrom": {"configMapKeyRef": {**source, "key": key["configMapKey"]}}}
