"""A client for one namespace, and the paths of objects in the namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.lookup import get_namespace
from stepset.backends.kubernetes.api.permissions import Grant, lacks_permission, missing_permission
from stepset.backends.kubernetes.api.replies import RefusedError, Reply
from stepset.backends.kubernetes.api.resources import Manifest, Resource, resource_of, target_of
from stepset.backends.option_names import option
from stepset.errors import BadInputError, InfrastructureError, StepsetError
from stepset.targets.validation.syntax import namespace_problem


@dataclass(frozen=True)
class NamespacedClient:
    """A client, and the namespace of the runs.

    `grant` contains the permissions that the account needs, for error messages about missing permissions. If the
    namespace is "", the client lists the objects of all namespaces.

    Raises BadInputError if the name of the namespace is invalid.
    """

    client: Client
    namespace: str
    grant: Grant = field(default_factory=Grant)

    def __post_init__(self) -> None:
        field_name = option(self.grant.interface, "namespace")
        if self.namespace and (wrong := namespace_problem(self.namespace, field_name)):
            raise BadInputError(wrong)

    def of_kind(self, kind: Resource) -> NamespacedClient:
        """Returns a client whose errors state only the permissions for one target.

        `kind` is the kind of the target's workloads. If no target has this kind, returns this client.
        """
        target = target_of(kind)
        return self if target is None else self.granting(target)

    def granting(self, *targets: str) -> NamespacedClient:
        """Returns a client whose errors state the permissions for these targets."""
        return replace(self, grant=replace(self.grant, targets=targets))

    def missing_permission(
        self, reply: Reply, others: Sequence[str] = (), *, in_namespace: bool = False
    ) -> InfrastructureError:
        """Returns the error for a missing permission. The error contains the command that grants the permission.

        The function `missing_permission` describes the arguments.
        """
        return missing_permission(reply, self.namespace, self.grant, others, in_namespace=in_namespace)

    def with_remedy(self, error: StepsetError, *, in_namespace: bool = False) -> StepsetError:
        """Converts an error of a request to an error for the user.

        If a permission is missing, the returned error contains the command that grants the permission. Otherwise
        returns `error`. The function `missing_permission` describes `in_namespace`.
        """
        if isinstance(error, RefusedError) and lacks_permission(error.reply):
            return self.missing_permission(error.reply, in_namespace=in_namespace)
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

    async def namespace_is_readable(self) -> bool:
        """Returns whether the account can read the namespace. False does not mean that the namespace does not exist."""
        return bool(self.namespace) and (await get_namespace(self.client, self.namespace)).accepted

    async def create(self, manifest: Manifest) -> Reply:
        """Creates an object. The server removes unknown fields, and returns a warning for each unknown field."""
        query = {"fieldManager": "stepset", "fieldValidation": "Warn"}
        return await self.client.post(self.all(resource_of(manifest)), manifest, query)
