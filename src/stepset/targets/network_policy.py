"""Renders the NetworkPolicy of a run. Only pods of the run may connect to pods of the run."""

from __future__ import annotations

from typing import Any

from stepset.targets.metadata import RUN, metadata
from stepset.targets.request import RenderRequest


def network_policy(request: RenderRequest) -> dict[str, Any]:
    """Returns the NetworkPolicy of a run.

    The policy restricts incoming connections on all ports. Outgoing connections are not restricted. The policy selects
    the pods of the run by a label. The policy does not protect against accounts that may create pods, because their
    pods can have the same label (docs/security.md).
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
