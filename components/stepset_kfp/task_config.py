"""Applies what a pipeline set on the task to the training pods. Pure.

KFP passes it as dsl.TaskConfig, fragments of a pod's spec, if the component lists the fields as passthroughs
(kubeflow/pipelines backend/src/v2/driver/driver.go). The component's inputs take precedence over the task's settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stepset.spec.template import NODE

TASK_CONFIG = "stepset_task_config"
"""The input of a distributed component that receives KFP's task config."""


class TaskConfig(Protocol):
    """kfp.dsl.TaskConfig; None in every field that was not set, and in all of them locally."""

    affinity: Mapping[str, Any] | None
    tolerations: Sequence[Mapping[str, Any]] | None
    node_selector: Mapping[str, str] | None
    env: Sequence[Mapping[str, Any]] | None
    volumes: Sequence[Mapping[str, Any]] | None
    volume_mounts: Sequence[Mapping[str, Any]] | None
    resources: Mapping[str, Any] | None


def with_task_config(job: Mapping[str, Any], task: TaskConfig | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns a job with the task's settings below its own, and notes on those that could not be applied."""
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
    given, elsewhere, notes = _env(task.env or ())
    if given:
        merged["env"] = {**given, **(job.get("env") or {})}
    if elsewhere or task.volumes or task.volume_mounts:
        merged["pod_template"] = _template(job.get("pod_template") or {}, task, elsewhere)
    return merged, notes


def claims(task: TaskConfig | None) -> list[str]:
    """Names of the PersistentVolumeClaims that the pods would share."""
    volumes = (task.volumes if task is not None else None) or ()
    found = (volume.get("persistentVolumeClaim") for volume in volumes)
    return [str(each["claimName"]) for each in found if each and not each.get("readOnly")]


def _resources(task: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The job's resources if it sets more than the size of shared memory, else the task's."""
    shm = {"shm": own["shm"]} if "shm" in own else {}
    if set(own) - {"shm"}:
        return dict(own)
    limits = dict(task.get("limits") or {})
    return {"requests": {**limits, **(task.get("requests") or {})}, "limits": limits, **shm}


def _env(
    entries: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], list[Mapping[str, Any]], tuple[str, ...]]:
    """Variables in the job file's form, those that have no such form, and notes on those left out."""
    given: dict[str, Any] = {}
    elsewhere: list[Mapping[str, Any]] = []
    notes = []
    for entry in entries:
        name, source = str(entry["name"]), entry.get("valueFrom") or {}
        if "fieldRef" in source or "resourceFieldRef" in source:
            # In the training pod it would be that pod's field: another name, another address.
            notes.append(f"env {name} is a field of the step's pod and is not handed on; set it as an input")
        elif secret := source.get("secretKeyRef"):
            if secret.get("optional"):
                elsewhere.append(entry)
            else:
                given[name] = {"secret": secret["name"], "key": secret["key"]}
        elif source:
            elsewhere.append(entry)
        else:
            given[name] = str(entry.get("value", ""))
    return given, elsewhere, tuple(notes)


def _template(own: Mapping[str, Any], task: TaskConfig, env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The job's pod template merged over the task's volumes and variables."""
    from stepset.targets.pods.strategic_merge import merge

    container = {
        "name": NODE,
        **({"env": [dict(each) for each in env]} if env else {}),
        **({"volumeMounts": [dict(each) for each in task.volume_mounts]} if task.volume_mounts else {}),
    }
    volumes = {"volumes": [dict(each) for each in task.volumes]} if task.volumes else {}
    return merge({"spec": {"containers": [container], **volumes}}, own)
