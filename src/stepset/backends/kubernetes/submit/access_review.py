"""Checks the permissions of the account.

This module sends one SelfSubjectAccessReview for each permission in the minimal Role. The server may use an authorizer
other than RBAC, such as a webhook. Therefore this module does not read Roles, but asks the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepset.backends.kubernetes.api.client import Client, gather
from stepset.backends.kubernetes.api.lookup import get_namespace
from stepset.backends.kubernetes.api.permissions import MAY_NOT_EXIST, Grant, account_name
from stepset.backends.option_names import Interface
from stepset.errors import InfrastructureError
from stepset.targets.rbac import FOR_DIAGNOSES, rules

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.spec.job import TrainingJob

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 8


@dataclass(frozen=True)
class Permission:
    """The permission to use one verb on one resource.

    `group` is the API group; empty for the core group. `resource` is the plural name of the resource, such as `pods`,
    or the path of a subresource, such as `pods/log`.
    """

    group: str
    resource: str
    verb: str

    @property
    def place(self) -> str:
        """The resource in the notation of `kubectl auth can-i`."""
        name, slash, sub = self.resource.partition("/")
        return f"{name}{f'.{self.group}' if self.group else ''}{slash}{sub}"


def permissions(rules: Sequence[Mapping[str, Any]]) -> Iterator[Permission]:
    """Yields every permission in the rules of a Role."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Permission(group, resource, verb)


def required_by(grant: Grant) -> list[Permission]:
    """Returns every permission in a grant."""
    found = (
        permissions(rules(target, grant.gang, **grant.optional, read_only=grant.read_only)) for target in grant.targets
    )
    return list(dict.fromkeys(each for target in found for each in target))


async def allowed(client: Client, permission: Permission, namespace: str) -> bool:
    """Returns whether the account has a permission in a namespace.

    Raises InfrastructureError if the server does not answer.
    """
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
    """Returns the permissions in `required` that the account does not have. Raises the errors of `allowed`."""
    missing = []
    for first in range(0, len(required), _AT_ONCE):
        some = required[first : first + _AT_ONCE]
        answers = await gather(*(allowed(client, each, namespace) for each in some))
        missing += [each for each, answer in zip(some, answers, strict=True) if not answer]
    return missing


def grant_of(job: TrainingJob, target: str, interface: Interface) -> Grant:
    """Returns the permissions that an account needs to submit a job through an interface."""
    from stepset.targets.gang import gang_of

    return Grant(
        interface,
        (target,),
        gang_of(job),
        mpi=job.needs_launcher,
        lost_node=job.restart.lost_node == "release",
        network_policy=job.network.policy,
    )


async def problems(
    client: Client, missing: Sequence[Permission], namespace: str, grant: Grant
) -> tuple[list[str], list[str]]:
    """Returns the problems and the notes about missing permissions, as one line for each resource.

    If only diagnoses need a permission, the line is a note. If the account lacks all of the required permissions,
    returns a single problem. If the account cannot read the namespace, this problem states that the namespace might not
    exist. Each line contains the command that grants
    the permissions.
    """
    if not missing:
        return [], []
    who = await account_name(client)
    if len(missing) == len(required_by(grant)):
        what = "read" if grant.read_only else "create, read or delete"
        unknown = "" if (await get_namespace(client, namespace)).accepted else MAY_NOT_EXIST
        return [
            f"rbac: {who or 'you'} may not {what} runs in namespace {namespace!r}{unknown};"
            f" have an administrator run: {grant.command(namespace, who)}"
        ], []
    optional = {each.place for each in permissions([FOR_DIAGNOSES])}
    found, notes = list[str](), list[str]()
    for place in dict.fromkeys(each.place for each in missing):
        verbs = ", ".join(each.verb for each in missing if each.place == place)
        line = (
            f"rbac: {who or 'you'} may not {verbs} {place} in namespace {namespace}; have an administrator run:"
            f" {grant.command(namespace, who)}"
        )
        if place in optional:
            notes.append(f"diagnoses may lack details: {line}")
        else:
            found.append(line)
    return found, notes
