"""Applies the settings of a KFP task, such as resources and volumes, to the training pods.

KFP passes the settings to the step as a dsl.TaskConfig, which contains parts of a pod's spec. KFP passes only the
fields that the component lists as passthroughs (kubeflow/pipelines backend/src/v2/driver/driver.go). If an input of the
component contradicts a setting of the task, the input is used.

`allow_several_nodes` decides whether pods on several nodes can mount a claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from stepset.spec.template import NODE

TASK_CONFIG = "stepset_task_config"
"""The name of the input in which KFP passes the settings of the task to a component that `distribute` returned."""
WORKSPACE_MOUNT = "/kfp-workspace"
"""The directory at which KFP mounts a pipeline's workspace (kfp.dsl.constants.WORKSPACE_MOUNT_PATH)."""
WORKSPACE_REMEDY = (
    'dsl.WorkspaceConfig(SIZE, dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteMany"]}))'
)
"""The part of error messages that describes a workspace for training on several nodes."""


class TaskConfig(Protocol):
    """The attributes of kfp.dsl.TaskConfig.

    A field that is not set on the task is None. With KFP's local runner, all fields are None.
    """

    affinity: Mapping[str, Any] | None
    tolerations: Sequence[Mapping[str, Any]] | None
    node_selector: Mapping[str, str] | None
    env: Sequence[Mapping[str, Any]] | None
    volumes: Sequence[Mapping[str, Any]] | None
    volume_mounts: Sequence[Mapping[str, Any]] | None
    resources: Mapping[str, Any] | None


def with_task_config(job: Mapping[str, Any], task: TaskConfig | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Adds the settings of a task to the mapping of a job. The settings do not replace fields of the job.

    Returns a tuple of the new mapping and notes. The notes describe the settings that could not be applied.
    """
    merged = dict(job)
    if task is None:
        return merged, ()
    if task.resources:
        merged["resources_per_node"] = _resources(task.resources, job.get("resources_per_node") or {})
    scheduling = dict(job.get("scheduling") or {})
    if task.node_selector:
        scheduling["node_selector"] = {**task.node_selector, **(scheduling.get("node_selector") or {})}
    if task.tolerations:
        scheduling["tolerations"] = [*task.tolerations, *(scheduling.get("tolerations") or ())]
    if task.affinity:
        scheduling.setdefault("affinity", dict(task.affinity))
    if scheduling:
        merged["scheduling"] = scheduling
    given, in_template, notes = _env(task.env or ())
    if given:
        merged["env"] = {**given, **(job.get("env") or {})}
    if in_template or task.volumes or task.volume_mounts:
        merged["pod_template"] = _template(job.get("pod_template") or {}, task, in_template)
    return merged, notes


def claims(task: TaskConfig | None) -> list[str]:
    """Returns the names of the PersistentVolumeClaims among a task's volumes. Read-only volumes are not included."""
    volumes = (task.volumes if task is not None else None) or ()
    found = (volume.get("persistentVolumeClaim") for volume in volumes)
    return [str(each["claimName"]) for each in found if each and not each.get("readOnly")]


def _resources(task: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources of each training pod.

    If the job sets resources other than the size of shared memory, the resources of the task are ignored.
    """
    shm = {"shm": own["shm"]} if "shm" in own else {}
    if set(own) - {"shm"}:
        return dict(own)
    limits = dict(task.get("limits") or {})
    return {"requests": {**limits, **(task.get("requests") or {})}, "limits": limits, **shm}


def _env(
    entries: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], list[Mapping[str, Any]], tuple[str, ...]]:
    """Splits the environment variables of a task into groups. Returns a tuple of three elements.

    The first element is a value for the job's field `env`, with the variables that this field supports. The second
    element is a list of the variables that only a pod template supports. The third element contains notes about
    variables that were omitted.
    """
    given: dict[str, Any] = {}
    in_template: list[Mapping[str, Any]] = []
    notes = []
    for entry in entries:
        name, source = str(entry["name"]), entry.get("valueFrom") or {}
        if "fieldRef" in source or "resourceFieldRef" in source:
            # The author of the pipeline expects that the variable contains the value of a field of the step's pod. In a
            # training pod, the variable would contain the value of the training pod's field.
            notes.append(f"env {name} is a field of the step's pod, so training pods do not get it; set it as an input")
        elif secret := source.get("secretKeyRef"):
            if secret.get("optional"):
                in_template.append(entry)
            else:
                given[name] = {"secret": secret["name"], "key": secret["key"]}
        elif source:
            in_template.append(entry)
        else:
            given[name] = str(entry.get("value", ""))
    return given, in_template, tuple(notes)


def _template(own: Mapping[str, Any], task: TaskConfig, env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a pod template with the task's volumes and variables.

    The pod template of the job is merged into the returned template. The values of the job take precedence.
    """
    from stepset.targets.pods.strategic_merge import merge

    container = {
        "name": NODE,
        **({"env": [dict(each) for each in env]} if env else {}),
        **({"volumeMounts": [dict(each) for each in task.volume_mounts]} if task.volume_mounts else {}),
    }
    volumes = {"volumes": [dict(each) for each in task.volumes]} if task.volumes else {}
    return merge({"spec": {"containers": [container], **volumes}}, own)


def allow_several_nodes(modes: Collection[str]) -> bool:
    """Returns whether pods on several nodes can mount a claim with these access modes.

    >>> allow_several_nodes(["ReadWriteOnce"])
    False
    """
    return bool({"ReadWriteMany", "ReadOnlyMany"} & set(modes))
