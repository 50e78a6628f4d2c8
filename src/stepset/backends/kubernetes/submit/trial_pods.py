"""Renders pods as the controllers would create them, for dry runs. Pure.

A server may accept a JobSet and refuse its pods later: it checks quotas, limit ranges, pod security, service accounts
and priority classes only when a pod is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.targets.metadata import GROUP
from stepset.targets.request import RenderRequest

# The server does not check whether the owner exists, but a policy may refuse pods that name no owner.
_MISSING_OWNER = "00000000-0000-0000-0000-000000000000"
_OWNERS = {"statefulset": ("apps/v1", "StatefulSet"), "volcano": ("batch.volcano.sh/v1alpha1", "Job")}


def trial_pods(request: RenderRequest, target: str, objects: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Returns one pod of each group; `objects` are the request rendered for the target."""
    if target == "trainjob":
        # Trainer's controller creates a JobSet with the same pods as stepset's (docs/targets.md, trainjob).
        from stepset.targets.kinds.jobset import render

        objects = render(request)
    version, kind = _OWNERS.get(target, ("batch/v1", "Job"))
    pods = []
    for template in templates(objects[-1]):
        name = f"{request.run}-{template['metadata']['labels'][GROUP]}-0-0"
        owner = {"apiVersion": version, "kind": kind, "name": request.run, "uid": _MISSING_OWNER, "controller": True}
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return pods


def templates(workload: Manifest) -> list[Manifest]:
    """Returns the pod templates of a workload, one for each group; a pod is its own template."""
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
