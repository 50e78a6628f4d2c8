"""Renders the headless Service that gives pods their DNS names.

Only some targets need this module. For the other targets, a controller creates the Service.
"""

from __future__ import annotations

from typing import Any

from stepset.targets.metadata import RUN, metadata
from stepset.targets.optional_fields import without_empty
from stepset.targets.request import RenderRequest


def headless_service(request: RenderRequest) -> dict[str, Any]:
    """Returns the headless Service of a run.

    The Service publishes the DNS names of pods before the pods are ready, because ranks connect to each other when they
    start.
    """
    ports = [{"name": name, "port": port} for name, port in request.plan.ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(request, request.subdomain),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN: request.run},
            **without_empty(ports=ports),
        },
    }
