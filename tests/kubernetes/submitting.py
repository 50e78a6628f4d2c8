"""Submits a rendered job to a server."""

from __future__ import annotations

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.submit.submission import Submitted, create_objects
from stepset.rendering import render
from stepset.targets.request import RenderRequest


async def submit(namespaced: NamespacedClient, request: RenderRequest, target: str) -> Submitted:
    """Renders a run, and creates its objects."""
    return await create_objects(namespaced, request, render(request, target), target)
