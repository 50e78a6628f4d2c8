"""Checks whether the checkpoints of a task are on a volume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stepset.spec.template import writable_mounts
from stepset.targets.notes import checkpoint_notes
from stepset_kfp.authoring.encoding import WORKSPACE, has_runtime_value, is_channel
from stepset_kfp.task_config import WORKSPACE_MOUNT

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask


def volume_notes(task: PipelineTask, fields: Mapping[str, Any], remedy: str) -> Iterator[str]:
    """Yields a note if `checkpoint_dir` is not on a volume that outlives the pods.

    The workspace of the pipeline, and the claims that are mounted on the task, are such volumes.

    Args:
        task: the task.
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
