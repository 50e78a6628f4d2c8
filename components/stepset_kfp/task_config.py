"""Applies the settings of a task to the training pods. Pure.

KFP passes them as dsl.TaskConfig, fragments of a pod's spec, if the component lists the fields as passthroughs
(kubeflow/pipelines backend/src/v2/driver/driver.go). The component's inputs take precedence over the task's settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stepset.spec.template import NODE

TASK_CONFIG = "stepset_task_config"
"""Name of the input through which KFP passes the task's settings to a distributed component."""


class TaskConfig(Protocol):
    """kfp.dsl.TaskConfig; fields that were not set are None. With KFP's local runner all fields are None."""

    affinity: Mapping[str, Any] | None
    tolerations: Sequence[Mapping[str, Any]] | None
    node_selector: Mapping[str, str] | None
    env: Sequence[Mapping[str, Any]] | None
    volumes: Sequence[Mapping[str, Any]] | None
    volume_mounts: Sequence[Mapping[str, Any]] | None
    resources: Mapping[str, Any] | None


def with_task_config(job: Mapping[str, Any], task: TaskConfig | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns a job with the task's settings as defaults, and notes on the settings that could not be applied."""
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
    """Returns the names of the PersistentVolumeClaims that the pods mount for writing."""
    volumes = (task.volumes if task is not None else None) or ()
    found = (volume.get("persistentVolumeClaim") for volume in volumes)
    return [str(each["claimName"]) for each in found if each and not each.get("readOnly")]


def _resources(task: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the job's resources if it sets more than the size of shared memory, else the task's."""
    shm = {"shm": own["shm"]} if "shm" in own else {}
    if set(own) - {"shm"}:
        return dict(own)
    limits = dict(task.get("limits") or {})
    return {"requests": {**limits, **(task.get("requests") or {})}, "limits": limits, **shm}


def _env(
    entries: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], list[Mapping[str, Any]], tuple[str, ...]]:
    """Returns variables in the job file's form, variables without such a form, and notes on omitted variables."""
    given: dict[str, Any] = {}
    in_template: list[Mapping[str, Any]] = []
    notes = []
    for entry in entries:
        name, source = str(entry["name"]), entry.get("valueFrom") or {}
        if "fieldRef" in source or "resourceFieldRef" in source:
            # In a training pod the value would be that pod's field, for example its name or address.
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
    """Returns a pod template with the task's volumes and variables, and the job's pod template merged over it."""
    from stepset.targets.pods.strategic_merge import merge

    container = {
        "name": NODE,
        **({"env": [dict(each) for each in env]} if env else {}),
        **({"volumeMounts": [dict(each) for each in task.volume_mounts]} if task.volume_mounts else {}),
    }
    volumes = {"volumes": [dict(each) for each in task.volumes]} if task.volumes else {}
    return merge({"spec": {"containers": [container], **volumes}}, own)
