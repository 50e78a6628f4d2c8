"""Converts containers beside the training container to native sidecars.

A pod runs until all of its `containers` have terminated. Some containers never terminate. One example is a container
that exports metrics. If such a container were not a sidecar, the pod would never finish. Sidecars are init containers
with `restartPolicy: Always`. When the training container has terminated, the kubelet stops the sidecars and ignores
their exit codes.

A container with `restartPolicy: Never` is no sidecar. The pod ends when this container has ended, too, and fails if the
container fails. One example is a container that uploads the results of the training container.

Source: kubernetes v1.36 pkg/kubelet/kuberuntime/kuberuntime_container.go (computeInitContainerActions) and
pkg/kubelet/kubelet_pods.go (getPhase); enabled by default since Kubernetes 1.29 (feature gate SidecarContainers).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from stepset.targets.names import CONTAINER

ALWAYS = "Always"
NEVER = "Never"


def with_sidecars(template: Mapping[str, Any], keeps: Collection[str] = ()) -> dict[str, Any]:
    """Converts the containers of a pod template except the training container to sidecars.

    The sidecars keep their fields and their order. The sidecars start after the other init containers. If there is no
    training container, the template is not changed. A container with `restartPolicy: Never` stays a container. The
    field `restartPolicy` is removed, because the pod has this policy, and because Kubernetes 1.34 and older reject the
    field in a container.

    Args:
        keeps: the names of further containers that stay containers.
    """
    spec = template["spec"]
    rows = spec.get("containers") or []
    if len(rows) < 2 or not any(row["name"] == CONTAINER for row in rows):
        return dict(template)
    kept, sidecars = [], []
    for row in rows:
        if row["name"] == CONTAINER or row["name"] in keeps:
            kept.append(row)
        elif row.get("restartPolicy") == NEVER:
            kept.append({field: value for field, value in row.items() if field != "restartPolicy"})
        else:
            sidecars.append({**row, "restartPolicy": ALWAYS})
    init = [*(spec.get("initContainers") or []), *sidecars]
    return {**template, "spec": {**spec, **({"initContainers": init} if init else {}), "containers": kept}}
