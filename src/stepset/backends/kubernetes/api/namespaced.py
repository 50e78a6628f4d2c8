"""A client bound to one namespace, and the paths of objects in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.permissions import Grant, lacks_permission, missing_permission
from stepset.backends.kubernetes.api.replies import RefusedError, Reply
from stepset.backends.kubernetes.api.resources import Manifest, Resource, resource_of, target_of
from stepset.errors import InfrastructureError, StepsetError


@dataclass(frozen=True)
class NamespacedClient:
    """A client and the namespace of the runs; `grant` contains the required permissions, for error messages."""

    client: Client
    namespace: str
    grant: Grant = field(default_factory=Grant)

    def of_kind(self, kind: Resource) -> NamespacedClient:
        """Returns a client whose errors name only the permissions for the target with this kind of workload.

        Returns this client if no target has this kind.
        """
        target = target_of(kind)
        return self if target is None else self.granting(target)

    def granting(self, *targets: str) -> NamespacedClient:
        """Returns a client whose errors name the permissions for these targets."""
        return replace(self, grant=replace(self.grant, targets=targets))

    def missing_permission(self, reply: Reply) -> InfrastructureError:
        """Returns the error for a missing permission, with the command that grants it."""
        return missing_permission(reply, self.namespace, self.grant)

    def with_remedy(self, error: StepsetError) -> StepsetError:
        """Returns an error of a request; for a missing permission, the error with the command that grants it."""
        if isinstance(error, RefusedError) and lacks_permission(error.reply):
            return self.missing_permission(error.reply)
        return error

    def all(self, resource: Resource) -> str:
        """Returns the path of a collection."""
        return resource.path(self.namespace)

    def one(self, resource: Resource, name: str) -> str:
        """Returns the path of an object."""
        return f"{resource.path(self.namespace)}/{name}"

    def path_of(self, manifest: Manifest) -> str:
        """Returns the path of the object in a manifest."""
        return self.one(resource_of(manifest), manifest["metadata"]["name"])

    async def create(self, manifest: Manifest) -> Reply:
        """Creates an object; the server drops fields that it does not know, with a warning."""
        query = {"fieldManager": "stepset", "fieldValidation": "Warn"}
        return await self.client.post(self.all(resource_of(manifest)), manifest, query)
