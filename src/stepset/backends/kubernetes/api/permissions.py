"""Replies to requests that the account may not send."""

from __future__ import annotations

from stepset.backends.kubernetes.api.replies import Reply
from stepset.errors import InfrastructureError


def missing_permission(reply: Reply, namespace: str) -> InfrastructureError:
    """Returns the error that the account lacks a permission; for replies for which `lacks_permission` is true."""
    message = " ".join(str(reply.body.get("message", "")).split()).rstrip(".")
    return InfrastructureError(
        f"rbac: {message}; have an administrator run: stepset rbac --namespace {namespace} | kubectl apply -f -"
    )


def access_note(reply: Reply, namespace: str) -> str:
    """Returns the note on an optional collection that the account may not read; empty for any other refusal."""
    return f"diagnoses may lack details: {missing_permission(reply, namespace)}" if lacks_permission(reply) else ""


def lacks_permission(reply: Reply) -> bool:
    """Whether authorization refused the request, and not admission.

    Both are 403. The authorizer names the account and the permission (kubernetes v1.36
    staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage).
    """
    message = str(reply.body.get("message", ""))
    return reply.status == 403 and " cannot " in message and ' resource "' in message
