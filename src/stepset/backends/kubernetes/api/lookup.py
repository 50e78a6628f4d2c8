"""Reads an object by its name.

If the object does not exist, the names of the existing objects of the same kind are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import NOT_FOUND, Reply
from stepset.backends.kubernetes.api.resources import KUEUE_VERSIONS, NAMESPACES, PRIORITY_CLASSES, Manifest, Resource
from stepset.unstructured import part, rows, text

_LISTED = 10
"""The maximum number of names of existing objects in a message."""


@dataclass(frozen=True)
class Lookup:
    """The result of reading an object.

    Args:
        found: the object. None if the object does not exist, or if the account cannot read the object.
        readable: whether the account may read the object.
        others: if the object does not exist, the names of the existing objects of the same kind. None if the account
            cannot list the objects, or if only objects for the system exist.
    """

    found: Manifest | None = None
    readable: bool = True
    others: Sequence[str] | None = None

    @property
    def missing(self) -> bool:
        """Whether the object does not exist."""
        return self.readable and self.found is None

    @property
    def remedy(self) -> str:
        """What the user can do if the object does not exist: use one of the existing names, or create the object."""
        if not self.others:
            return "create it, or use another one" if self.others is None else "none exists; create it"
        more = f" and {len(self.others) - _LISTED} more" if len(self.others) > _LISTED else ""
        return f"use one that exists: {', '.join(sorted(self.others)[:_LISTED])}{more}"


async def kueue_resource(client: Client, plural: str) -> Resource | None:
    """Returns a resource of Kueue in the newest version that the server serves; None if Kueue is not installed.

    Raises InfrastructureError if the server cannot be reached.
    """
    for version in KUEUE_VERSIONS:
        resource = Resource("kueue.x-k8s.io", version, plural)
        if (await client.get(resource.discovery)).status != NOT_FOUND:
            return resource
    return None


async def get_namespace(client: Client, name: str) -> Reply:
    """Reads a namespace. Most accounts cannot read namespaces."""
    return await client.get(f"{NAMESPACES.path('')}/{name}")


async def look_up(client: Client, resource: Resource, namespace: str, name: str) -> Lookup:
    """Reads an object. If the object does not exist, reads the names of all objects of the same kind.

    The PriorityClasses that Kubernetes creates are omitted, because they are for the pods of the system.
    `namespace` is empty if `resource` is not namespaced.
    """
    reply = await client.get(f"{resource.path(namespace)}/{name}")
    if reply.accepted:
        return Lookup(reply.body)
    if not reply.lacks_object:
        return Lookup(readable=False)
    listed = await client.get(resource.path(namespace), {"limit": "500"})
    names = [text(part(each, "metadata"), "name") for each in rows(listed.body, "items")]
    usable = [each for each in names if resource != PRIORITY_CLASSES or not each.startswith("system-")]
    return Lookup(others=usable if listed.accepted and (usable or not names) else None)
