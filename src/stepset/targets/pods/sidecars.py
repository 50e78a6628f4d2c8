"""Containers beside the training container, as native sidecars.

A pod runs until all of its `containers` have ended, and an exporter of metrics never ends. The kubelet stops sidecars,
which are init containers with `restartPolicy: Always`, when the training container has ended, and ignores their exit
codes.

Source: kubernetes v1.36 pkg/kubelet/kuberuntime/kuberuntime_container.go (computeInitContainerActions) and
pkg/kubelet/kubelet_pods.go (getPhase); enabled by default since Kubernetes 1.29 (feature gate SidecarContainers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.targets.names import CONTAINER

ALWAYS = "Always"


def with_sidecars(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a pod template whose containers beside the training container are sidecars.

    They keep their fields and their order, and start after the init containers. Without a training container the
    template is unchanged.
    """
    spec = template["spec"]
    rows = spec.get("containers") or []
    training = [row for row in rows if row["name"] == CONTAINER]
    if not training or len(rows) == 1:
        return dict(template)
    sidecars = [{**row, "restartPolicy": ALWAYS} for row in rows if row["name"] != CONTAINER]
    init = [*(spec.get("initContainers") or []), *sidecars]
    return {**template, "spec": {**spec, "initContainers": init, "containers": training}}
