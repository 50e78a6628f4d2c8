"""Replies that deny a permission, and the command that grants it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

from stepset.backends.kubernetes.api.replies import Reply
from stepset.errors import InfrastructureError

_SERVICE_ACCOUNT = "system:serviceaccount:"
# The account's name is quoted as Go's %q does, then `&`, `<` and `>` are escaped.
_USER = re.compile(
    r'User "((?:[^"\\]|\\.){1,2000})" cannot ([a-z]{1,20}) resource "([^"]{1,100})" in API group "([^"]{0,100})"'
)
_ESCAPED = re.compile(r'\\(["\\])')
_GANGS = {"scheduling.x-k8s.io": "coscheduling", "scheduling.volcano.sh": "volcano", "kueue.x-k8s.io": "kueue"}


@dataclass(frozen=True)
class Grant:
    """The permissions that an account needs, as arguments of `stepset rbac`.

    Args:
        backend: the interface that submits runs: cli, airflow or kfp.
        targets, gang, mpi, lost_node, network_policy: as in targets/rbac.py.
    """

    backend: str = "cli"
    targets: tuple[str, ...] = ("jobset",)
    gang: str = "none"
    mpi: bool = False
    lost_node: bool = False
    network_policy: bool = False

    @property
    def optional(self) -> dict[str, bool]:
        """Whether the account needs each of the permissions that only some runs need, by name."""
        return {"mpi": self.mpi, "lost_node": self.lost_node, "network_policy": self.network_policy}

    def command(self, namespace: str, account: str) -> str:
        """Returns the shell command that grants the permissions to `account`; empty: the backend's default account."""
        words = ["stepset", "rbac", *(["--backend", self.backend] if self.backend != "cli" else [])]
        words += ["--namespace", namespace, *(word for target in self.targets for word in ("--target", target))]
        words += ["--gang", self.gang] if self.gang != "none" else []
        words += ["--mpi"] if self.mpi else []
        words += ["--lost-node"] if self.lost_node else []
        words += ["--network-policy"] if self.network_policy else []
        if account.startswith(_SERVICE_ACCOUNT):
            words += ["--account", account.removeprefix(_SERVICE_ACCOUNT).replace(":", "/")]
        elif account:
            words += ["--user", account]
        return f"{shlex.join(words)} | kubectl apply -f -"

    def including(self, resource: str, group: str) -> Grant:
        """Returns this grant, extended by a resource that only some runs need."""
        gang = _GANGS.get(group, self.gang)
        mpi, lost_node = self.mpi or resource == "secrets", self.lost_node or resource == "pods/status"
        policy = self.network_policy or resource == "networkpolicies"
        return replace(self, gang=gang, mpi=mpi, lost_node=lost_node, network_policy=policy)


def missing_permission(reply: Reply, namespace: str, grant: Grant) -> InfrastructureError:
    """Returns the error for a reply that `lacks_permission`, with the command that grants the permission.

    An empty namespace means all namespaces.
    """
    message = str(reply.body.get("message", ""))
    account, _, resource, group = found.groups() if (found := _USER.search(message)) else ("", "", "", "")
    reason = " ".join(message.split()).rstrip(".")
    if not namespace:  # a Role grants access to one namespace
        return InfrastructureError(f"rbac: {reason}; list the runs of one namespace instead: --namespace NAME")
    command = grant.including(resource, group).command(namespace, _unquoted(account))
    return InfrastructureError(f"rbac: {reason}; have an administrator run: {command}")


def _unquoted(name: str) -> str:
    """Returns an account's name as it was before the server quoted it; control characters stay quoted."""
    return _ESCAPED.sub(r"\1", name.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def access_note(reply: Reply, namespace: str, grant: Grant) -> str:
    """Returns the note on an optional collection that the account may not read; empty for any other refusal."""
    if not lacks_permission(reply):
        return ""
    return f"diagnoses may lack details: {missing_permission(reply, namespace, grant)}"


def lacks_permission(reply: Reply) -> bool:
    """Whether authorization refused the request, and not admission.

    Both are 403. The authorizer names the account and the permission (kubernetes v1.36
    staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage).
    """
    message = str(reply.body.get("message", ""))
    return reply.status == 403 and " cannot " in message and ' resource "' in message
