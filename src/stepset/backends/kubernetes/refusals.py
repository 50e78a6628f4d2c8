"""Replies that are no yes, in the job file's words. Pure; used by the server check and by the submission."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.backends.kubernetes.api.replies import TOO_LARGE, Reply
from stepset.backends.kubernetes.api.resources import resource_of
from stepset.backends.kubernetes.job_words import JobWords
from stepset.backends.kubernetes.rejections import rejections
from stepset.errors import InfrastructureError

REFUSES_AT_START = 60.0
"""Seconds for which a server may refuse (401, 403) what it has allowed before, or anything when it has just started."""


class Forbearance:
    """Whether to bear with a server that refuses: one that starts does not know all accounts and roles at once.

    Args:
        allowed: it has allowed before what is asked for.

    Attributes:
        allowed: likewise, until now.
    """

    def __init__(self, allowed: bool = False) -> None:
        self.allowed = allowed
        self._starts = False
        self._since: float | None = None

    def granted(self) -> None:
        """It has allowed it."""
        self.allowed, self._since = True, None

    def unreachable(self) -> None:
        """It is not there: who comes back then has just started, and may not even know what it would allow."""
        self._starts, self._since = True, None

    def bears(self, clock: float) -> bool:
        """Whether a refusal may be over soon.

        Args:
            clock: seconds of a clock that is never set.
        """
        self._since = clock if self._since is None else self._since
        return (self.allowed or self._starts) and clock - self._since < REFUSES_AT_START


def refusals(reply: Reply, manifest: Mapping[str, Any], words: JobWords) -> Iterator[str]:
    """One line for each thing the server has against an object; none where it is there already.

    Args:
        reply: to its creation.
        manifest: the object.
        words: the job's.
    """
    # Comes last: an object that is there already has passed everything else.
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
    """The error that whoever asks may not do what was asked.

    Args:
        reply: for which `may_not` is true.
        namespace: in which.
    """
    message = " ".join(str(reply.body.get("message", "")).split()).rstrip(".")
    return InfrastructureError(
        f"rbac: {message}; have an administrator run: stepset rbac --namespace {namespace} | kubectl apply -f -"
    )


def unseen(reply: Reply, namespace: str) -> str:
    """What is said of a collection that is followed only where that is allowed; empty where it is not there at all.

    Args:
        reply: the refusal.
        namespace: in which.
    """
    return f"a diagnosis may know less: {missing_right(reply, namespace)}" if may_not(reply) else ""


def already_exists(reply: Reply) -> bool:
    """Whether an object of that name is there."""
    return reply.status == 409 and reply.body.get("reason") == "AlreadyExists"


def no_namespace(reply: Reply) -> bool:
    """Whether the namespace is not there, or about to go."""
    details = reply.body.get("details") or {}
    ending = any(cause.get("reason") == "NamespaceTerminating" for cause in details.get("causes") or ())
    return ending or (reply.status == 404 and details.get("kind") == "namespaces")


def namespace_missing(namespace: str) -> str:
    """The problem that it is not."""
    return f"namespace: {namespace!r} is not there, or is being deleted; create it, or give --namespace"


def may_not(reply: Reply) -> bool:
    """Whether it is a refusal by authorization, and not by admission.

    Both are 403. The authorizer names who asks and what for (kubernetes v1.36
    staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage).
    """
    message = str(reply.body.get("message", ""))
    return reply.status == 403 and " cannot " in message and ' resource "' in message


def misses_runtime(reply: Reply, manifest: Mapping[str, Any]) -> bool:
    """Whether a webhook, which speaks after everything else, misses a TrainJob's runtime.

    Both Trainer's (v2.3) and Kueue's (v0.18) look for it, in what they have heard of until then; the server has decoded
    and defaulted the TrainJob by then.

    Args:
        reply: to its creation.
        manifest: the TrainJob, or any other object.
    """
    if reply.accepted or manifest["kind"] != "TrainJob":
        return False
    name = re.escape(manifest["spec"]["runtimeRef"]["name"])
    return re.search(rf"""[Rr]untime\S* ["']{name}["'] not found""", str(reply.body.get("message", ""))) is not None
