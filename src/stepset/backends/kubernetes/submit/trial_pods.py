"""Renders the pods that the controllers would create. Dry runs send these pods to the server.

A server may accept a JobSet and later refuse the pods. The server checks quotas, limit ranges, pod security, service
accounts and priority classes only when a pod is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.targets.metadata import GROUP
from stepset.targets.pod_templates import templates_of
from stepset.targets.request import RenderRequest
from stepset.targets.workload_kinds import WORKLOAD_KINDS

# The uid of an owner that does not exist. A policy may refuse pods without an owner. The server does not check whether
# the owner exists.
_MISSING_OWNER = "00000000-0000-0000-0000-000000000000"


def trial_pods(request: RenderRequest, target: str, objects: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Returns one pod of each group. `objects` are the rendered objects of `request`."""
    if target == "trainjob":
        # Trainer's controller creates a JobSet with the same pods as stepset's JobSet (docs/targets.md, trainjob).
        from stepset.targets.kinds.jobset import render

        objects = render(request)
    kind = WORKLOAD_KINDS[target].pod_owner
    pods = []
    for template in templates_of(objects[-1]):
        name = f"{request.run}-{template['metadata']['labels'][GROUP]}-0-0"
        of_kind = {"apiVersion": kind.api_version, "kind": kind.kind}
        owner = {**of_kind, "name": request.run, "uid": _MISSING_OWNER, "controller": True}
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return pods
