"""Checks the account's permissions by one SelfSubjectAccessReview for each verb of the minimal Role.

The server may use any authorizer (RBAC, a webhook), so only its own reviews are reliable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepset.backends.kubernetes.api.client import Client, gather
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.errors import InfrastructureError
from stepset.targets.rbac import rules

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.spec.job import TrainingJob

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_AT_ONCE = 8


@dataclass(frozen=True)
class Permission:
    """One verb on one resource.

    `resource` is the plural, with the subresource if there is one, such as `pods/log`. `group` is empty for the core
    group.
    """

    group: str
    resource: str
    verb: str

    @property
    def place(self) -> str:
        """The resource as `kubectl auth can-i` takes it."""
        name, slash, sub = self.resource.partition("/")
        return f"{name}{f'.{self.group}' if self.group else ''}{slash}{sub}"


def permissions(rules: Sequence[Mapping[str, Any]]) -> Iterator[Permission]:
    """Yields every permission that a Role's rules grant."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Permission(group, resource, verb)


def required_by(grant: Grant) -> list[Permission]:
    """Returns every permission that the Roles of a grant contain and its runs need."""
    found = (permissions(rules(target, grant.gang, **grant.optional)) for target in grant.targets)
    return list(dict.fromkeys(each for target in found for each in target))


async def allowed(client: Client, permission: Permission, namespace: str) -> bool:
    """Whether the account has a permission in a namespace; raises InfrastructureError if the server does not answer."""
    name, _, sub = permission.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "group": permission.group,
        "resource": name,
        "verb": permission.verb,
        **({"subresource": sub} if sub else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    reply = await client.post(_REVIEWS, review)
    status = reply.body.get("status")
    if not reply.accepted or not isinstance(status, Mapping):
        raise InfrastructureError(
            f"server {client.server}: does not report your permissions (HTTP {reply.status}:"
            f" {reply.message or 'no reason given'}); check the user of the kubeconfig's context"
        )
    return bool(status.get("allowed"))


async def missing_of(client: Client, required: Sequence[Permission], namespace: str) -> list[Permission]:
    """Returns the permissions that the account does not have; raises as `allowed` does."""
    missing = []
    for first in range(0, len(required), _AT_ONCE):
        some = required[first : first + _AT_ONCE]
        answers = await gather(*(allowed(client, each, namespace) for each in some))
        missing += [each for each, answer in zip(some, answers, strict=True) if not answer]
    return missing


def grant_of(job: TrainingJob, target: str, backend: str) -> Grant:
    """Returns the permissions that an account needs to submit a job through `backend`: cli, airflow or kfp."""
    from stepset.targets.gang import gang_of

    return Grant(
        backend,
        (target,),
        gang_of(job),
        mpi=job.needs_launcher,
        lost_node=job.restart.lost_node == "release",
        network_policy=job.network.policy,
    )


async def problems(client: Client, missing: Sequence[Permission], namespace: str, grant: Grant) -> list[str]:
    """Returns one line for each resource on which verbs are missing, with the command that grants the Roles."""
    if not missing:
        return []
    who = await _who(client)
    lines = []
    for place in dict.fromkeys(each.place for each in missing):
        verbs = ", ".join(each.verb for each in missing if each.place == place)
        lines.append(
            f"rbac: {who or 'you'} may not {verbs} {place} in namespace {namespace}; have an administrator run:"
            f" {grant.command(namespace, who)}"
        )
    return lines


async def _who(client: Client) -> str:
    """Returns the account's name; empty if the server does not report it (before Kubernetes 1.28)."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = await client.post(_WHO_AM_I, review)
    return str(reply.body.get("status", {}).get("userInfo", {}).get("username", "")) if reply.accepted else ""
