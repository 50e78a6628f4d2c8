"""Detects replies that deny a permission, creates the command that grants it, and reads the name of the account."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.option_names import Interface, option
from stepset.errors import InfrastructureError
from stepset.unstructured import part, text

_SERVICE_ACCOUNT = "system:serviceaccount:"
_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# The server quotes the name of the account with Go's %q. Then the server escapes `&`, `<` and `>`.
_USER = re.compile(
    r'User "((?:[^"\\]|\\.){1,2000})" cannot ([a-z]{1,20}) resource "([^"]{1,100})" in API group "([^"]{0,100})"'
)
_ESCAPED = re.compile(r'\\(["\\])')
_GANGS = {"scheduling.x-k8s.io": "coscheduling", "scheduling.volcano.sh": "volcano", "kueue.x-k8s.io": "kueue"}
MAY_NOT_EXIST = ", which might not exist (stepset rbac --create-namespace also creates it)"
"""The text after the name of a namespace in an error, if the account may have no permission in the namespace. The
server replies in the same way if the namespace does not exist."""
_OF_EXISTING = ("delete", "patch", "update")
"""The verbs of requests for an object that stepset has read before, so the namespace of the object exists."""


@dataclass(frozen=True)
class Grant:
    """The permissions that an account needs, as arguments of `stepset rbac`.

    Args:
        interface: the interface of the caller.
        targets, gang, mpi, lost_node, network_policy, exec, orphan, validate, priorities, quotas, read_only: the
            arguments of `rbac` in targets/rbac.py.
    """

    interface: Interface = "python"
    targets: tuple[str, ...] = ("jobset",)
    gang: str = "none"
    mpi: bool = False
    lost_node: bool = False
    network_policy: bool = False
    exec: bool = False
    orphan: bool = False
    validate: bool = False
    priorities: bool = False
    quotas: bool = False
    read_only: bool = False

    @property
    def optional(self) -> dict[str, bool]:
        """A mapping from the name of an optional permission to whether the account needs the permission."""
        return {"mpi": self.mpi, "lost_node": self.lost_node, "network_policy": self.network_policy}

    def command(self, namespace: str, account: str) -> str:
        """Returns the shell command that grants the permissions to `account`.

        If `account` is empty, the command grants the permissions to the default account of the backend.
        """
        words = ["stepset", "rbac", *(["--backend", self.interface] if self.interface in ("airflow", "kfp") else [])]
        words += ["--namespace", namespace, *(word for target in self.targets for word in ("--target", target))]
        words += ["--read-only"] if self.read_only else []
        words += ["--gang", self.gang] if self.gang != "none" else []
        words += ["--mpi"] if self.mpi else []
        words += ["--lost-node"] if self.lost_node else []
        words += ["--network-policy"] if self.network_policy else []
        words += ["--with", "exec"] if self.exec else []
        words += ["--with", "orphan"] if self.orphan else []
        words += ["--with", "validate"] if self.validate else []
        words += ["--with", "priorities"] if self.priorities else []
        words += ["--with", "quotas"] if self.quotas else []
        if account.startswith(_SERVICE_ACCOUNT):
            words += ["--account", account.removeprefix(_SERVICE_ACCOUNT).replace(":", "/")]
        elif account:
            words += ["--user", account]
        return f"{shlex.join(words)} | kubectl apply -f -"

    def including(self, resource: str, group: str) -> Grant:
        """Returns a copy of this grant that also contains the optional permissions for a resource.

        If the grant is read-only, the copy contains no permissions to change objects.
        """
        if self.read_only:
            return replace(self, gang="kueue") if _GANGS.get(group) == "kueue" else self
        gang = _GANGS.get(group, self.gang)
        mpi, lost_node = self.mpi or resource == "secrets", self.lost_node or resource == "pods/status"
        policy = self.network_policy or resource == "networkpolicies"
        return replace(self, gang=gang, mpi=mpi, lost_node=lost_node, network_policy=policy)


def missing_permission(
    reply: Reply, namespace: str, grant: Grant, others: Sequence[str] = (), *, in_namespace: bool = False
) -> InfrastructureError:
    """Returns the error for a reply that denies a permission. The error contains the command to grant the permission.

    Args:
        namespace: the namespace of the request. If empty, the request was for all namespaces.
        grant: the permissions that the account needs.
        others: further targets whose runs the account cannot read. The command does not contain these targets.
        in_namespace: whether the namespace exists. False means that this is unknown.
    """
    message = str(reply.body.get("message", ""))
    account, verb, resource, group = found.groups() if (found := _USER.search(message)) else ("", "", "", "")
    reason = " ".join(message.split()).rstrip(".")
    if not namespace:  # a Role grants access to one namespace
        instead = option(grant.interface, "namespace", "NAME")
        return InfrastructureError(f"rbac: {reason}; list the runs of one namespace instead: {instead}")
    kinds = {(each.group, each.plural) for each in WORKLOADS.values()}
    unknown = (group, resource) in kinds and verb not in _OF_EXISTING and not in_namespace
    reason += MAY_NOT_EXIST if unknown else ""
    command = grant.including(resource, group).command(namespace, _unquoted(account))
    more = f"; runs with the target {' or '.join(others)} need further permissions" if others else ""
    return InfrastructureError(f"rbac: {reason}{more}; have an administrator run: {command}")


def _unquoted(name: str) -> str:
    """Returns an account's name without quotes and escapes. Control characters stay escaped."""
    return _ESCAPED.sub(r"\1", name.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def access_note(reply: Reply, namespace: str, grant: Grant) -> str:
    """Returns a note if the account cannot read an optional collection.

    If the server refused the request for another reason, returns an empty string.
    """
    if not lacks_permission(reply):
        return ""
    return f"diagnoses may lack details: {missing_permission(reply, namespace, grant)}"


def lacks_permission(reply: Reply) -> bool:
    """Returns whether the server refused a request because the account lacks a permission.

    The status 403 is not sufficient, because admission plugins also reply with this status. Only the message of the
    authorizer contains the account and the permission (kubernetes v1.36
    staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage).
    """
    message = str(reply.body.get("message", ""))
    return reply.status == 403 and " cannot " in message and ' resource "' in message


async def account_name(client: Client) -> str:
    """Returns the name of the account. Returns "" if the server refuses the request or is older than Kubernetes 1.28.

    By default, the ClusterRole `system:basic-user` permits this request to all authenticated accounts.
    """
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = await client.post(_WHO_AM_I, review)
    return text(part(reply.body, "status", "userInfo"), "username") if reply.accepted else ""
