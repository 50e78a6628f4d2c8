"""API error responses in the job file's terms. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepset.backends.kubernetes.api.replies import TOO_LARGE, Reply
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.job_words import JobWords
from stepset.backends.kubernetes.rejections import rejections
from stepset.errors import InfrastructureError

REFUSES_AT_START = 60.0
"""Seconds for which a server may refuse (401, 403) what it allowed before, or anything after its start."""


class Forbearance:
    """Whether to retry after a refusal: a server that has just started does not know all accounts and roles yet.

    `allowed`: the server has allowed the same request before.
    """

    def __init__(self, allowed: bool = False) -> None:
        self.allowed = allowed
        self._starts = False
        self._since: float | None = None

    def granted(self) -> None:
        """Records that the server allowed the request."""
        self.allowed, self._since = True, None

    def unreachable(self) -> None:
        """Records that the server was down: after its start it may first refuse everything."""
        self._starts, self._since = True, None

    def bears(self, clock: float) -> bool:
        """Whether a refusal may be temporary; `clock` is in seconds of a monotonic clock."""
        self._since = clock if self._since is None else self._since
        return (self.allowed or self._starts) and clock - self._since < REFUSES_AT_START


def refusals(reply: Reply, manifest: Manifest, words: JobWords) -> Iterator[str]:
    """Yields one line for each objection to an object's creation; none if the object exists already."""
    # The server checks for existence last: an existing object has passed all other checks.
    if reply.accepted or already_exists(reply):
        return
    if reply.status == 404:
        yield resource_of(manifest).absent
    elif reply.status == TOO_LARGE:
        yield (
            f"{manifest['kind']} {manifest['metadata']['name']}: is more than the server takes in one object; keep"
            " large values out of env, args and pod_template, and let the training read them from storage"
        )
    else:
        yield from rejections({"code": reply.status, **reply.body}, manifest, words)


def missing_right(reply: Reply, namespace: str) -> InfrastructureError:
    """Returns the error that the account lacks a permission; for replies for which `may_not` is true."""
    message = " ".join(str(reply.body.get("message", "")).split()).rstrip(".")
    return InfrastructureError(
        f"rbac: {message}; have an administrator run: stepset rbac --namespace {namespace} | kubectl apply -f -"
    )


def unseen(reply: Reply, namespace: str) -> str:
    """Returns the note on an optional collection that the account may not read; empty if it does not exist at all."""
    return f"a diagnosis may know less: {missing_right(reply, namespace)}" if may_not(reply) else ""


def already_exists(reply: Reply) -> bool:
    """Whether an object of that name exists."""
    return reply.status == 409 and reply.body.get("reason") == "AlreadyExists"


def no_namespace(reply: Reply) -> bool:
    """Whether the namespace does not exist, or is being deleted."""
    details = reply.body.get("details") or {}
    ending = any(cause.get("reason") == "NamespaceTerminating" for cause in details.get("causes") or ())
    return ending or (reply.status == 404 and details.get("kind") == "namespaces")


def namespace_missing(namespace: str) -> str:
    """Returns the problem that the namespace does not exist."""
    return f"namespace: {namespace!r} is not there, or is being deleted; create it, or give --namespace"


def may_not(reply: Reply) -> bool:
    """Whether authorization refused the request, and not admission.

    Both are 403. The authorizer names the account and the permission (kubernetes v1.36
    staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage).
    """
    message = str(reply.body.get("message", ""))
    return reply.status == 403 and " cannot " in message and ' resource "' in message


def misses_runtime(reply: Reply, manifest: Manifest) -> bool:
    """Whether a webhook refused a TrainJob because it does not find its runtime; `manifest` may be any object.

    Both Trainer's (v2.3) and Kueue's (v0.18) look it up in a cache. Webhooks run after everything else: the server has
    decoded and defaulted the TrainJob by then.
    """
    if reply.accepted or manifest["kind"] != "TrainJob":
        return False
    name = re.escape(manifest["spec"]["runtimeRef"]["name"])
    return re.search(rf"""[Rr]untime\S* ["']{name}["'] not found""", str(reply.body.get("message", ""))) is not None
