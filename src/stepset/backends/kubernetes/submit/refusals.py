"""Translates API error responses into the job file's terms. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepset.backends.kubernetes.api.replies import TOO_LARGE, Reply
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.rejections import rejections


def refusals(reply: Reply, manifest: Manifest, mapper: FieldMapper) -> Iterator[str]:
    """Yields one line for each reason why the server refused to create an object; none if the object exists."""
    # The server checks for existence last: an existing object has passed all other checks.
    if reply.accepted or already_exists(reply):
        return
    if reply.status == 404:
        yield resource_of(manifest).absent
    elif reply.status == TOO_LARGE:
        yield (
            f"{manifest['kind']} {manifest['metadata']['name']}: is larger than the server accepts for one object; move"
            " large values from env, args and pod_template to storage that the training code reads"
        )
    else:
        yield from rejections({"code": reply.status, **reply.body}, manifest, mapper)


def already_exists(reply: Reply) -> bool:
    """Whether an object of that name exists."""
    return reply.status == 409 and reply.body.get("reason") == "AlreadyExists"


def no_namespace(reply: Reply) -> bool:
    """Whether the namespace does not exist, or is being deleted."""
    details = reply.body.get("details") or {}
    ending = any(cause.get("reason") == "NamespaceTerminating" for cause in details.get("causes") or ())
    return ending or (reply.status == 404 and details.get("kind") == "namespaces")


def namespace_missing(namespace: str) -> str:
    """Returns the message for a missing namespace."""
    return f"namespace: {namespace!r} does not exist, or is being deleted; create it, or give --namespace"


def misses_runtime(reply: Reply, manifest: Manifest) -> bool:
    """Whether a webhook refused a TrainJob because its runtime was not found; `manifest` may be any object.

    The webhooks of Trainer (v2.3) and Kueue (v0.18) look the runtime up in a cache. They run last: the server has
    already decoded and defaulted the TrainJob.
    """
    if reply.accepted or manifest["kind"] != "TrainJob":
        return False
    name = re.escape(manifest["spec"]["runtimeRef"]["name"])
    return re.search(rf"""[Rr]untime\S* ["']{name}["'] not found""", str(reply.body.get("message", ""))) is not None
