"""Pods as the controllers would make them, to be tried without being made. Pure.

Called by the server check. A server takes a JobSet whose pods it will refuse later, when nobody looks: quotas, limit
ranges, pod security, service accounts and priority classes are only looked at when a pod comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepset.targets.identity import GROUP
from stepset.targets.request import RenderRequest

# The server does not look whether the owner is there; policies against pods without one do look for it.
_NOBODY = "00000000-0000-0000-0000-000000000000"
_OWNERS = {"statefulset": ("apps/v1", "StatefulSet"), "volcano": ("batch.volcano.sh/v1alpha1", "Job")}


def trial_pods(request: RenderRequest, target: str, objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One pod of each group.

    Args:
        request: what was rendered.
        target: as what.
        objects: as what it was rendered.
    """
    if target == "trainjob":
        # Trainer's controller makes a JobSet of it; ours has the same pods (docs/targets.md, trainjob).
        from stepset.targets.jobset import render

        objects = render(request)
    version, kind = _OWNERS.get(target, ("batch/v1", "Job"))
    pods = []
    for template in templates(objects[-1]):
        name = f"{request.run}-{template['metadata']['labels'][GROUP]}-0-0"
        owner = {"apiVersion": version, "kind": kind, "name": request.run, "uid": _NOBODY, "controller": True}
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return pods


def templates(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pod templates of a workload, one for each group; a pod is its own."""
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
