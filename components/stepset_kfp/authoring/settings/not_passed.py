"""Notes about the settings of a task that apply to the step, but not to the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask


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
    "emptyDirMounts": _Setting("empty_dir_mount", ("pod_template", "shm"), 'shm="16Gi", or a volume in pod_template'),
    "genericEphemeralVolume": _Setting("add_ephemeral_volume", ("pod_template",), "a volume in pod_template"),
    "activeDeadlineSeconds": _Setting("set_timeout", ("deadline",), 'deadline="12h"'),
    "securityContext": _Setting(
        "set_security_context",
        ("pod_template", "security"),
        'security="restricted", or a securityContext in pod_template',
    ),
}
"""A mapping from fields of KubernetesExecutorConfig, a class of kfp-kubernetes 2.17.0, to settings."""
_METADATA = {
    "labels": _Setting("add_pod_label", ("labels", "pod_template"), 'labels={"KEY": "VALUE"}'),
    "annotations": _Setting("add_pod_annotation", ("annotations", "pod_template"), 'annotations={"KEY": "VALUE"}'),
}
"""A mapping from fields of `podMetadata` to settings."""


def not_passed_notes(task: PipelineTask, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each setting of a task that does not apply to the training.

    If the job has a field with the same effect, there is no note.

    Args:
        task: the task.
        fields: the fields of the job, and the other inputs of the task.
    """
    config = task.platform_config.get("kubernetes", {})
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
