"""The minimal Roles for submitting, watching and ending runs, and the accounts that get them.

Permissions that only some runs need are separate Roles, and each account has separate RoleBindings, so that applying
the output for one account or job never removes permissions of another. deploy/rbac/ contains the output.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepset.errors import BadInputError
from stepset.targets.request import check_target

Backend = Literal["airflow", "kfp", "cli"]

_NAME = "stepset"
_RBAC = "rbac.authorization.k8s.io"
_VISIBILITY = "visibility.kueue.x-k8s.io"
_UNSAFE = re.compile(r"[/%\x00-\x1f\x7f]")
_LONGEST = 150
_MAKE = ("create", "get", "patch", "delete")
_FOLLOW = ("get", "list", "watch")
_RUN = (*_FOLLOW, "create", "patch", "delete")

_WORKLOADS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "jobset": (("jobset.x-k8s.io", "jobsets"),),
    "trainjob": (("trainer.kubeflow.org", "trainjobs"), ("trainer.kubeflow.org", "trainingruntimes")),
    "statefulset": (("apps", "statefulsets"),),
    "job": (("batch", "jobs"),),
    "volcano": (("batch.volcano.sh", "jobs"),),
}
_POD_GROUPS = {"coscheduling": "scheduling.x-k8s.io", "volcano": "scheduling.volcano.sh"}


@dataclass(frozen=True)
class Account:
    """An account that gets the Roles.

    Args:
        namespace: of a service account; None: the namespace of the runs.
        user: whether it is a user and not a service account.
    """

    name: str
    namespace: str | None = None
    user: bool = False

    def subject(self, namespace: str) -> dict[str, Any]:
        """The subject of a RoleBinding; `namespace` is that of the runs."""
        if self.user:
            return {"apiGroup": _RBAC, "kind": "User", "name": self.name}
        return {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace or namespace}


# Airflow: the accounts of its Helm chart for workers and triggerers (the triggerer ends the run of a deferred task).
# KFP: the account of a pipeline's steps.
_ACCOUNTS: Mapping[str, tuple[Account, ...]] = {
    "airflow": (Account("airflow-worker", "airflow"), Account("airflow-triggerer", "airflow")),
    "kfp": (Account("pipeline-runner"),),
    "cli": (Account(_NAME),),
}


# KFP's steps check whether a workspace can be mounted by more than one node.
_OF_BACKEND: Mapping[str, tuple[dict[str, Any], ...]] = {
    "kfp": ({"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},),
}
_GANGS = ("none", "kueue", *_POD_GROUPS)


def rbac(
    backend: Backend | str = "cli",
    *,
    targets: Sequence[str] = ("jobset",),
    gang: str = "none",
    mpi: bool = False,
    lost_node: bool = False,
    network_policy: bool = False,
    namespace: str = "default",
    accounts: Sequence[Account] = (),
) -> list[dict[str, Any]]:
    """Returns Roles, a RoleBinding for each Role and account, and the CLI's ServiceAccount unless accounts are given.

    Args:
        backend: what submits the runs: airflow, kfp or cli.
        targets: the kinds of workloads.
        gang: none, kueue, coscheduling or volcano.
        mpi: whether jobs may use MPI, whose ssh keys are a Secret.
        lost_node: whether jobs may have `restart.lost_node: release`.
        network_policy: whether jobs may have `network.policy: true`.
        namespace: the namespace of the runs.
        accounts: the accounts that get the Roles; default: those of a usual installation of the backend.

    Raises:
        BadInputError: the backend, target or gang is not known.
    """
    _known("backend", backend, _ACCOUNTS)
    for target in targets:
        check_target(target)
    _known("gang", gang, _GANGS)
    who = tuple(accounts) or _ACCOUNTS[backend]
    meta = {"namespace": namespace, "labels": {"app.kubernetes.io/name": _NAME}}
    roles = {f"{_NAME}-{target}": base_rules(target) for target in targets}
    roles |= {f"{_NAME}-{name}": found for name, found in _optional(gang, mpi, lost_node, network_policy).items()}
    if backend in _OF_BACKEND:
        roles[f"{_NAME}-{backend}"] = list(_OF_BACKEND[backend])
    made = [] if backend != "cli" or accounts else [_service_account(meta)]
    for name, found in roles.items():
        made.append({"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": name, **meta}, "rules": found})
        made += [_binding(name, account, namespace, meta) for account in who]
    return made


def rules(
    target: str, gang: str, *, mpi: bool = False, lost_node: bool = False, network_policy: bool = False
) -> list[dict[str, Any]]:
    """Returns the rules that a run in a target needs; arguments are those of `rbac`."""
    optional = _optional(gang, mpi, lost_node, network_policy).values()
    return [*base_rules(target), *(rule for found in optional for rule in found if rule["apiGroups"] != [_VISIBILITY])]


def base_rules(target: str) -> list[dict[str, Any]]:
    """Returns the rules that every run in a target needs."""
    found = [_rule(group, resource, _RUN) for group, resource in _WORKLOADS[target]]
    found.append(_rule("", "configmaps", _MAKE))
    if target in ("statefulset", "job"):
        found.append(_rule("", "services", _MAKE))
    if target == "trainjob":
        found.append(_rule("jobset.x-k8s.io", "jobsets", _FOLLOW))
    if target in ("jobset", "trainjob"):
        found.append(_rule("batch", "jobs", _FOLLOW))
    return [
        *found,
        _rule("", "pods", (*_FOLLOW, "delete")),
        _rule("", "pods/log", ("get",)),
        _rule("", "events", ("list", "watch")),
    ]


def _optional(gang: str, mpi: bool, lost_node: bool, network_policy: bool) -> dict[str, list[dict[str, Any]]]:
    """Returns Role -> rules, for permissions that only some runs need."""
    found: dict[str, list[dict[str, Any]]] = {}
    if gang == "kueue":
        # With these, stepset shows why a run waits, and its position in the queue.
        found["kueue"] = [
            _rule("kueue.x-k8s.io", "workloads", _FOLLOW),
            _rule(_VISIBILITY, "localqueues/pendingworkloads", ("get",)),
        ]
    elif gang in _POD_GROUPS:
        found[gang] = [_rule(_POD_GROUPS[gang], "podgroups", _MAKE)]
    if mpi:
        # A Role cannot distinguish a run's Secret from others, and the reply to a patch contains the whole Secret.
        found["mpi"] = [_rule("", "secrets", ("create", "delete"))]
    if lost_node:
        # stepset sets the phase of a lost node's pod to Failed before it deletes the pod by force.
        found["lost-node"] = [_rule("", "pods/status", ("patch",))]
    if network_policy:
        found["network-policy"] = [_rule("networking.k8s.io", "networkpolicies", ("create", "get", "delete"))]
    return found


def _binding(role: str, account: Account, namespace: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    subject = account.subject(namespace)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        # A name in which each part can be recognized: service accounts and namespaces contain no colon.
        "metadata": {
            "name": ":".join(filter(None, (role, subject.get("namespace"), _path_segment(account.name)))),
            **meta,
        },
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [subject],
    }


def _path_segment(name: str) -> str:
    """Returns a name in which the characters that no name of a RoleBinding may contain are replaced, with a hash.

    Names of users may contain any character; those of OpenID Connect, for example, contain the issuer's URL.
    """
    safe = _UNSAFE.sub("_", name)
    return name if safe == name else f"{safe[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def _known(what: str, given: str, known: Mapping[str, Any] | Sequence[str]) -> None:
    if given not in known:
        raise BadInputError(f"{what}: {given!r} is not known; use one of {', '.join(known)}")


def _rule(group: str, resource: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _service_account(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _NAME, **meta}}
