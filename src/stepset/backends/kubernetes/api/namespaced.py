"""A client bound to one namespace, and the paths of objects in it."""

from __future__ import annotations

from dataclasses import dataclass

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import Manifest, Resource, resource_of


@dataclass(frozen=True)
class NamespacedClient:
    """A client and the namespace of the runs."""

    client: Client
    namespace: str

    def all(self, resource: Resource) -> str:
        """Returns the path of a collection."""
        return resource.path(self.namespace)

    def one(self, resource: Resource, name: str) -> str:
        """Returns the path of an object."""
        return f"{resource.path(self.namespace)}/{name}"

    def path_of(self, manifest: Manifest) -> str:
        """Returns the path of an object that was rendered or read."""
        return self.one(resource_of(manifest), manifest["metadata"]["name"])

    async def create(self, manifest: Manifest) -> Reply:
        """Creates an object; the server drops fields that it does not know, with a warning."""
        query = {"fieldManager": "stepset", "fieldValidation": "Warn"}
        return await self.client.post(self.all(resource_of(manifest)), manifest, query)
