"""Converts the server's error responses to messages about fields of the job file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepset.backends.kubernetes.api.replies import NOT_FOUND, TOO_LARGE, Reply
from stepset.backends.kubernetes.api.resources import Manifest, resource_of
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.rejections import rejections
from stepset.backends.option_names import Interface, option
from stepset.unstructured import part, rows, text


def refusals(reply: Reply, manifest: Manifest, mapper: FieldMapper) -> Iterator[str]:
    """Yields one line for each reason why the server refused to create an object.

    If the object already exists and the server reports no other reason, yields no line.
    """
    # The server first makes all other checks, then checks whether the object exists.
    if reply.accepted or already_exists(reply):
        return
    if reply.status == NOT_FOUND:
        yield resource_of(manifest).absent(mapper.interface)
    elif reply.status == TOO_LARGE:
        yield (
            f"{manifest['kind']} {manifest['metadata']['name']}: is larger than the server accepts for one object; move"
            " large values from env, args and pod_template to storage that the training code reads"
        )
    else:
        yield from rejections({"code": reply.status, **reply.body}, manifest, mapper)


def already_exists(reply: Reply) -> bool:
    """Returns whether the server refused to create an object because an object with the same name exists."""
    return reply.status == 409 and reply.body.get("reason") == "AlreadyExists"


def no_namespace(reply: Reply) -> bool:
    """Returns whether the server refused a request because the namespace does not exist or is being deleted."""
    details = part(reply.body, "details")
    ending = any(cause.get("reason") == "NamespaceTerminating" for cause in rows(details, "causes"))
    return ending or (reply.status == NOT_FOUND and details.get("kind") == "namespaces")


def namespace_missing(reply: Reply, namespace: str, interface: Interface) -> str:
    """Returns the error message for a missing namespace.

    `reply` is the server's reply. `no_namespace(reply)` must be true. `interface` determines how the message
    names the option that sets the namespace.
    """
    instead = f"give another one: {option(interface, 'namespace', 'NAME')}"
    if reply.status == NOT_FOUND:
        return f"namespace: {namespace!r} does not exist; create it: kubectl create namespace {namespace}; or {instead}"
    return f"namespace: {namespace!r} is being deleted; wait until it is deleted and create it again, or {instead}"


def misses_runtime(reply: Reply, manifest: Manifest) -> bool:
    """Returns whether a webhook refused a TrainJob because the webhook did not find the TrainingRuntime.

    If `manifest` is not a TrainJob, returns False. The webhooks of Trainer (v2.3) and Kueue (v0.18) look up the runtime
    in a cache. Before the server calls these webhooks, it decodes the TrainJob and sets default values.
    """
    if reply.accepted or manifest["kind"] != "TrainJob":
        return False
    name = re.escape(manifest["spec"]["runtimeRef"]["name"])
    return re.search(rf"""[Rr]untime\S* ["']{name}["'] not found""", text(reply.body, "message")) is not None
