"""Determines the identity of a step from the pod of the step. A retry of the step finds the run by this identity.

KFP sets the variable KFP_POD_NAME, and labels the pod with the ID of the pipeline run. Argo adds an
annotation with the name of the pod's node in the Workflow, and makes the Workflow the owner of the pod.

The name of the node consists of levels. Each level that Argo may retry ends with a counter. In KFP 2.17, Argo may retry
every level. For example, `digits-x7k2p(0).root(0).train(0).executor(1)` is the second try of the executor. If Argo then
retries the level above, the name is `digits-x7k2p(0).root(0).train(1).executor(0)`. An item of a loop, such as
`iteration-iterations(3:3)(0)`, also has a number and a value. The number and the value do not change when Argo retries
the item.

All functions except `own_pod` are pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.portal import Connection
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.backends.kubernetes.api.resources import PODS
from stepset.errors import InfrastructureError
from stepset.safe_names import slug

RUN_ID = "pipeline/runid"
NODE_NAME = "workflows.argoproj.io/node-name"
PIPELINE_RUN = "kfp.stepset.dev/run"
"""A label of all objects that the steps of a pipeline run have created. The value is the ID of the pipeline run."""
_RETRY = re.compile(r"\(\d+\)(?=\.|$)")
"""Matches Argo's counter of retries at the end of a level of a node's name."""
_SLUG = 26  # with a hash of ten characters, the name is short enough for every target (jobset_name_budget)


@dataclass(frozen=True)
class Identity:
    """The identity of a step of a pipeline run.

    Args:
        run_id: the ID of the pipeline run.
        node: the name of the step's node in the Workflow, without the counters of retries.
        namespace: the namespace of the step's pod.
        owned_by: an ownerReference to the Workflow. None if the pod has no such owner.
    """

    run_id: str
    node: str
    namespace: str
    owned_by: Mapping[str, Any] | None

    @property
    def owner(self) -> str:
        """The hash of the identity. A label of the run contains this hash, so a retry of the step finds the run."""
        return hashlib.sha256(f"kfp|{self.run_id}|{self.node}".encode()).hexdigest()[:40]

    def run_name(self, job: str) -> str:
        return f"{slug(job, _SLUG)}-{self.owner[:10]}"


def identity_of(pod: Mapping[str, Any]) -> Identity:
    """Returns the identity of the step that runs in a pod.

    Raises InfrastructureError if KFP's label or Argo's annotation is missing.
    """
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
    """Returns the step's own pod. Raises InfrastructureError if the pod cannot be read.

    `name` is the value of KFP_POD_NAME.
    """
    reply = connection.get(f"{PODS.path(connection.namespace)}/{name}")
    if not reply.accepted:
        namespaced = NamespacedClient(connection.client, connection.namespace, Grant("kfp", (target,)))
        raise InfrastructureError(f"the step cannot read its own pod: {namespaced.with_remedy(RefusedError(reply))}")
    return reply.body


def _reference(workflow: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: workflow[key] for key in ("apiVersion", "kind", "name", "uid")},
        # With True, some clusters such as OpenShift would require an additional permission.
        "blockOwnerDeletion": False,
    }
