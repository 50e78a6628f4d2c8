"""Converts all containers except the training container to native sidecars.

A pod runs until all of its `containers` have terminated. Some containers never terminate. One example is a container
that exports metrics. If such a container were not a sidecar, the pod would never finish. Sidecars are init containers
with `restartPolicy: Always`. When the training container has terminated, the kubelet stops the sidecars and ignores
their exit codes.

Source: kubernetes v1.36 pkg/kubelet/kuberuntime/kuberuntime_container.go (computeInitContainerActions) and
pkg/kubelet/kubelet_pods.go (getPhase); enabled by default since Kubernetes 1.29 (feature gate SidecarContainers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.targets.names import CONTAINER

ALWAYS = "Always"


def with_sidecars(template: Mapping[str, Any]) -> dict[str, Any]:
    """Converts all containers of a pod template except the training container to sidecars.

    The sidecars keep their fields and their order. They start after the other init containers. If there is no training
    container, the template is not changed.
    """
    spec = template["spec"]
    rows = spec.get("containers") or []
    training = [row for row in rows if row["name"] == CONTAINER]
    if not training or len(rows) == 1:
        return dict(template)
    sidecars = [{**row, "restartPolicy": ALWAYS} for row in rows if row["name"] != CONTAINER]
    init = [*(spec.get("initContainers") or []), *sidecars]
    return {**template, "spec": {**spec, "initContainers": init, "containers": training}}
