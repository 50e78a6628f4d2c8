"""Asks the server for the name of the account that a client uses."""

from __future__ import annotations

from stepset.backends.kubernetes.api.client import Client
from stepset.unstructured import part, text

_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def account_name(client: Client) -> str:
    """Returns the name of the account. Returns "" if the server refuses the request or is older than Kubernetes 1.28.

    By default, the ClusterRole `system:basic-user` permits this request to all authenticated accounts.
    """
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = await client.post(_WHO_AM_I, review)
    return text(part(reply.body, "status", "userInfo"), "username") if reply.accepted else ""
