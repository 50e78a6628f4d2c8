"""The identity of a step, read from its own pod, by which a retry finds the step's run. Pure except `own_pod`.

KFP sets KFP_POD_NAME and labels the pod with the pipeline run. Argo annotates the pod with the workflow's node, whose
name is the same in all retries except for the `(n)` at its end, and makes the Workflow the pod's owner.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.kubernetes.api.connection import Connection
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.backends.kubernetes.api.resources import PODS
from stepset.errors import InfrastructureError
from stepset.spec.names import slug

RUN_ID = "pipeline/runid"
NODE_NAME = "workflows.argoproj.io/node-name"
PIPELINE_RUN = "kfp.stepset.dev/run"
"""Label of all objects that the steps of a pipeline run created."""
_RETRY = re.compile(r"\(\d+\)$")
_SLUG = 26  # with a hash of ten characters within every target's budget (jobset_name_budget)


@dataclass(frozen=True)
class Identity:
    """A step of a pipeline run; `node` is the name of the workflow's node, the same in every retry.

    `owned_by` is an ownerReference to the Workflow; None if the pod has no such owner.
    """

    run_id: str
    node: str
    namespace: str
    owned_by: Mapping[str, Any] | None

    @property
    def owner(self) -> str:
        """The hash by which the step recognises its own run."""
        return hashlib.sha256(f"kfp|{self.run_id}|{self.node}".encode()).hexdigest()[:40]

    def run_name(self, job: str) -> str:
        return f"{slug(job, _SLUG)}-{self.owner[:10]}"


def identity_of(pod: Mapping[str, Any]) -> Identity:
    """Returns the identity of a pod's step; raises InfrastructureError without KFP's label or Argo's annotation."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    missing = [
        what
        for what, where in ((f"label {RUN_ID}", labels), (f"annotation {NODE_NAME}", annotations))
        if not where.get(what.partition(" ")[2])
    ]
    if missing:
        raise InfrastructureError(
            f"pod {metadata['name']} has no {' and no '.join(missing)}, which a retry needs to find its run; run the"
            " component in a Kubeflow pipeline"
        )
    workflow = next((each for each in metadata.get("ownerReferences") or () if each["kind"] == "Workflow"), None)
    return Identity(
        run_id=str(labels[RUN_ID]),
        node=_RETRY.sub("", str(annotations[NODE_NAME])),
        namespace=str(metadata["namespace"]),
        owned_by=_reference(workflow) if workflow else None,
    )


def own_pod(connection: Connection, name: str, target: str) -> Mapping[str, Any]:
    """Returns the step's own pod; raises InfrastructureError if it cannot be read. `name` is KFP_POD_NAME."""
    reply = connection.get(f"{PODS.path(connection.namespace)}/{name}")
    if not reply.accepted:
        namespaced = NamespacedClient(connection.client, connection.namespace, Grant("kfp", (target,)))
        raise InfrastructureError(f"the step cannot read its own pod: {namespaced.with_remedy(RefusedError(reply))}")
    return reply.body


def _reference(workflow: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: workflow[key] for key in ("apiVersion", "kind", "name", "uid")},
        # Many clusters (OpenShift) require an extra permission to block an owner's deletion.
        "blockOwnerDeletion": False,
    }
