"""Pods as the controllers would make them, to be tried without being made. Pure.

Called by the server check. A server takes a JobSet whose pods it will refuse later, when nobody looks: quotas, limit
ranges, pod security, service accounts and priority classes are only looked at when a pod comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    for template in _templates(objects[-1]["spec"]):
        name = f"{request.run}-{template['metadata']['labels'][GROUP]}-0-0"
        owner = {"apiVersion": version, "kind": kind, "name": request.run, "uid": _NOBODY, "controller": True}
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return pods


def _templates(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The pod templates of a workload: of a JobSet, a Volcano Job, a Job or a StatefulSet."""
    if "replicatedJobs" in spec:
        for row in spec["replicatedJobs"]:
            yield row["template"]["spec"]["template"]
    elif "tasks" in spec:
        for row in spec["tasks"]:
            yield row["template"]
    else:
        yield spec["template"]
