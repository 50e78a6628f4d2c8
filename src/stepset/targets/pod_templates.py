"""Reads the pod templates of a workload, and the names of the priority classes in the templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.unstructured import part, rows, text


def templates_of(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the pod templates of a rendered workload, one for each group. For a pod, returns the pod itself."""
    spec = workload["spec"]
    if workload["kind"] == "Pod":
        return [workload]
    if workload["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    if "replicatedJobs" in spec:
        return [row["template"]["spec"]["template"] for row in spec["replicatedJobs"]]
    if "tasks" in spec:
        return [row["template"] for row in spec["tasks"]]
    return [spec["template"]]


def priority_classes(workload: Mapping[str, Any]) -> list[str]:
    """Returns the names of the PriorityClasses in the pod templates of a workload, each name once.

    The workload can be an object of the server with missing or invalid fields. Such fields are ignored.
    """
    names = (text(part(template, "spec"), "priorityClassName") for template in _readable_templates(workload))
    return list(dict.fromkeys(name for name in names if name))


def _readable_templates(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the same templates as `templates_of`, without missing or invalid templates."""
    spec = part(workload, "spec")
    if text(workload, "kind") == "Pod":
        return [workload]
    if text(workload, "kind") == "TrainingRuntime":
        spec = part(spec, "template", "spec")
    if "replicatedJobs" in spec:
        return [part(row, "template", "spec", "template") for row in rows(spec, "replicatedJobs")]
    if "tasks" in spec:
        return [part(row, "template") for row in rows(spec, "tasks")]
    return [part(spec, "template")]
