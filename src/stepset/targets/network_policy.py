"""The NetworkPolicy of a run: only its own pods may connect to its pods, at every port."""

from __future__ import annotations

from typing import Any

from stepset.targets.metadata import RUN, metadata
from stepset.targets.request import RenderRequest


def network_policy(request: RenderRequest) -> dict[str, Any]:
    """The NetworkPolicy; connections from the pods are not restricted.

    It selects by the label of the run, which every target sets on every pod. An account that may create pods can
    set the label, too: a NetworkPolicy cannot distinguish such pods (docs/security.md).
    """
    own_pods = {"matchLabels": {RUN: request.run}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(request, request.run),
        "spec": {
            "podSelector": own_pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": own_pods}]}],
        },
    }
