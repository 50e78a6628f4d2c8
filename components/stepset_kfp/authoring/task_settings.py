"""Checks a task when KFP compiles the pipeline.

The author of a pipeline changes the settings of a task after the creation of the task, and KFP reads the settings after
the function that defines the pipeline has ended. Therefore the object in which the task stores its resources starts the
check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp.dsl.structures import ResourceSpec

from stepset.errors import BadInputError
from stepset.spec.template import writable_mounts
from stepset.targets.notes import checkpoint_notes
from stepset_kfp.authoring.cluster_checks import may_run_on_cluster
from stepset_kfp.authoring.encoding import WORKSPACE, has_runtime_value, is_channel
from stepset_kfp.authoring.task_conflicts import check_claims, check_variables, conflict_notes
from stepset_kfp.task_config import WORKSPACE_MOUNT

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

_log = logging.getLogger(__name__)
_EXAMPLE = 'set_accelerator_type("nvidia.com/gpu")'


@dataclass(frozen=True)
class _Setting:
    """A setting that KFP does not pass to stepset.

    Attributes:
        function: the function of kfp-kubernetes that changes the setting.
        fields: the fields of the job that have this effect on the training pods.
        remedy: what the author of the pipeline can write instead.
    """

    function: str
    fields: tuple[str, ...]
    remedy: str


_SHARED_MEMORY = "/dev/shm"
_SETTINGS = {
    "imagePullSecret": _Setting(
        "set_image_pull_secrets",
        ("pod_template", "service_account"),
        'pod_template={"imagePullSecrets": [{"name": "NAME"}]}',
    ),
    "imagePullPolicy": _Setting(
        "set_image_pull_policy",
        ("pod_template",),
        'pod_template={"containers": [{"name": "node", "imagePullPolicy": "Always"}]}',
    ),
    "emptyDirMounts": _Setting("empty_dir_mount", ("pod_template",), "a volume in pod_template"),
    _SHARED_MEMORY: _Setting("empty_dir_mount", ("pod_template", "shm"), 'shm="16Gi"'),
    "genericEphemeralVolume": _Setting("add_ephemeral_volume", ("pod_template",), "a volume in pod_template"),
    "activeDeadlineSeconds": _Setting("set_timeout", ("deadline",), 'deadline="12h"'),
    "securityContext": _Setting(
        "set_security_context",
        ("pod_template", "security"),
        'security="restricted", or a securityContext in pod_template',
    ),
}
"""A mapping from fields of KubernetesExecutorConfig, a class of kfp-kubernetes 2.17.0, to settings.

`emptyDirMounts` does not contain the mount at /dev/shm, which has its own entry."""
_METADATA = {
    "labels": _Setting("add_pod_label", ("labels", "pod_template"), 'labels={"KEY": "VALUE"}'),
    "annotations": _Setting("add_pod_annotation", ("annotations", "pod_template"), 'annotations={"KEY": "VALUE"}'),
}
"""A mapping from fields of `podMetadata` to settings."""


def check_at_compilation(
    task: PipelineTask, place: str, inputs: Mapping[str, Any], arguments: Mapping[str, Any], remedy: str
) -> None:
    """Checks a task and its settings when KFP compiles the pipeline for a cluster.

    The compilation logs a warning for each note about the task, and raises BadInputError if a setting is invalid.

    Args:
        task: the task, before its settings are changed.
        place: the description of the task for messages.
        inputs: the inputs of the task.
        arguments: the inputs with the types of the component's inputs.
        remedy: how the author of the pipeline can write the checkpoints to the workspace.
    """
    from kfp.dsl.pipeline_context import Pipeline

    container, pipeline = task.container_spec, Pipeline.get_default_pipeline()
    if container is None or container.resources is not None or not may_run_on_cluster(inputs):
        return
    job = inputs.get("job")
    fields = {**(job if isinstance(job, Mapping) else {}), **inputs}

    def check() -> None:
        try:
            for note in _notes(task, fields, remedy):
                _log.warning("%s: %s", place, note)
            check_claims(task, fields.get("num_nodes"), pipeline)
            check_variables(task, arguments)
        except BadInputError as error:
            raise error.at(place) from None

    container.resources = _ObservedResources(check)


def _notes(task: PipelineTask, fields: Mapping[str, Any], remedy: str) -> Iterator[str]:
    """Yields the notes about a task, whose settings do not change any more.

    Args:
        fields: the fields of the job, and the other inputs of the task.
        remedy: how the author of the pipeline can write the checkpoints to the workspace.
    """
    yield from accelerator_notes(task.container_spec.resources, fields)
    yield from volume_notes(task, fields, remedy)
    yield from not_passed_notes(task, fields)
    yield from conflict_notes(task, fields)


class _ObservedResources(ResourceSpec):  # type: ignore[misc]  # kfp has no types
    """The resources of a task. When KFP's compiler first reads the type of the accelerators, the task is checked.

    The compiler always reads the type, because the components have TaskConfig passthroughs. The compiler also reads
    `__dict__` (kfp 2.15.2 to 2.17.0, kfp/compiler/pipeline_spec_builder.py). Therefore `__dict__` contains the type
    under the name of the attribute. The compiler adds each entry of `__dict__` that contains a run-time value to the
    inputs of the task. Therefore the check is a slot.
    """

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check: Callable[[], None] | None = check

    @property
    def accelerator_type(self) -> str | None:
        check, self._check = self._check, None  # the compiler and the check itself read the type several times
        if check is not None:
            check()
        name: str | None = self.__dict__["accelerator_type"]
        return name

    @accelerator_type.setter
    def accelerator_type(self, name: str | None) -> None:
        self.__dict__["accelerator_type"] = name


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


def not_passed_notes(task: PipelineTask, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each setting of a task that does not apply to the training.

    If the job has a field with the same effect, there is no note.

    Args:
        fields: the fields of the job, and the other inputs of the task.
    """
    config = task.platform_config.get("kubernetes", {})
    paths = {each["mountPath"] for each in config.get("emptyDirMounts", ())}
    config = {**config, "emptyDirMounts": paths - {_SHARED_MEMORY}, _SHARED_MEMORY: paths & {_SHARED_MEMORY}}
    for found, settings in ((config, _SETTINGS), (config.get("podMetadata", {}), _METADATA)):
        for name, setting in settings.items():
            if found.get(name) and not any(fields.get(field) for field in setting.fields):
                yield f"{setting.function} does not apply to the training pods; for these pods, use {setting.remedy}"
    if task._task_spec.retry_policy is not None and not fields.get("restart"):
        yield (
            "a server with KFP 2.17 or newer does not apply set_retry to a step whose training fails, but older servers"
            ' retry the step; to restart the training on every server, use restart={"max_restarts": 3}'
        )
    if task.container_spec.image != task.component_spec.implementation.container.image and not fields.get("image"):
        yield (
            "set_container_image changes the image of the step, which must contain stepset, but not the image of the"
            ' training pods; for these pods, use image="REGISTRY/NAME:TAG"'
        )


def volume_notes(task: PipelineTask, fields: Mapping[str, Any], remedy: str) -> Iterator[str]:
    """Yields a note if `checkpoint_dir` is not on a volume that outlives the pods.

    The workspace of the pipeline, and the claims that are mounted on the task, are such volumes.

    Args:
        fields: the fields of the job. If the directory or the volumes are known only at run time, nothing is checked.
        remedy: how the author of the pipeline can write the checkpoints to the workspace.
    """
    storage, template = fields.get("storage") or (), fields.get("pod_template") or {}
    directory = fields.get("checkpoint_dir")
    directory = directory.replace(WORKSPACE, WORKSPACE_MOUNT) if isinstance(directory, str) else None
    if not directory or any(map(has_runtime_value, (directory, storage, template))) or is_channel(fields.get("job")):
        return
    claims = task.platform_config.get("kubernetes", {}).get("pvcMount", ())
    volumes = [
        WORKSPACE_MOUNT,
        *(each["mountPath"] for each in claims),
        *_storage_paths(storage),
        *writable_mounts(template if isinstance(template, Mapping) else {}, lasting=True),
    ]
    for note in checkpoint_notes(directory, volumes):
        yield f"{note}, mount a claim on the task, or {remedy}"


def _storage_paths(storage: Any) -> Iterator[str]:
    """Yields the paths of the writable volumes of `storage`. Skips invalid volumes, because the step checks them.

    If another input is known only at run time, the compilation may not have checked `storage`.
    """
    for volume in storage if isinstance(storage, (list, tuple)) else ():
        if isinstance(volume, Mapping) and isinstance(path := volume.get("path"), str) and not volume.get("read_only"):
            yield path
