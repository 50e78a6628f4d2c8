"""The headless Service by which pods find each other, for targets whose controller creates none."""

from __future__ import annotations

from typing import Any

from stepset.targets.metadata import RUN, metadata
from stepset.targets.optional_fields import without_empty
from stepset.targets.request import RenderRequest


def headless_service(request: RenderRequest) -> dict[str, Any]:
    """The Service of the pods' subdomain; it lists pods before they are ready, because ranks wait for each other."""
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
