"""The least Role for submitting, watching and ending runs, and the accounts that get it.

deploy/rbac/ holds the output of `stepset rbac`. Secrets can be created and deleted but not read: no account needs to
read a run's ssh keys, and a Role cannot distinguish them from other Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepset.errors import BadInputError
from stepset.targets.request import check_target

Backend = Literal["airflow", "kfp", "cli"]

_NAME = "stepset"
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
    """A service account; `namespace` None: the namespace of the runs."""

    name: str
    namespace: str | None = None


# Airflow: those of its Helm chart, for workers and triggerers; a deferred task is ended by the triggerer. KFP: the one
# under which a pipeline's steps run.
_ACCOUNTS: Mapping[str, tuple[Account, ...]] = {
    "airflow": (Account("airflow-worker", "airflow"), Account("airflow-triggerer", "airflow")),
    "kfp": (Account("pipeline-runner"),),
    "cli": (Account(_NAME),),
}


# KFP's steps check whether a workspace can be mounted by more than one node.
_OF_BACKEND: Mapping[str, tuple[dict[str, Any], ...]] = {
    "kfp": ({"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},),
}


def rbac(
    backend: Backend | str = "cli",
    *,
    target: str = "jobset",
    gang: str = "kueue",
    namespace: str = "default",
    accounts: Sequence[Account] = (),
) -> list[dict[str, Any]]:
    """A Role and its RoleBinding; for the CLI also the ServiceAccount of the Role.

    `backend` submits the runs: airflow, kfp or cli. `gang` is none, kueue, coscheduling or volcano. `accounts` get the
    Role; default: the accounts that the backend usually has. Raises BadInputError for an unknown backend, target or
    gang.
    """
    _known("backend", backend, _ACCOUNTS)
    check_target(target)
    _known("gang", gang, ("none", "kueue", *_POD_GROUPS))
    who = tuple(accounts) or _ACCOUNTS[backend]
    meta = {"namespace": namespace, "labels": {"app.kubernetes.io/name": _NAME}}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": _NAME, **meta},
        "rules": [*rules(target, gang), *optional_rules(gang), *_OF_BACKEND.get(backend, ())],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{_NAME}-{backend}", **meta},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": _NAME},
        "subjects": [
            {"kind": "ServiceAccount", "name": each.name, "namespace": each.namespace or namespace} for each in who
        ],
    }
    made = [] if backend != "cli" or accounts else [_service_account(meta)]
    return [*made, role, binding]


def rules(target: str, gang: str) -> list[dict[str, Any]]:
    """What a run in a target needs."""
    found = [_rule(group, resource, _RUN) for group, resource in _WORKLOADS[target]]
    found += [
        _rule("", "configmaps", _MAKE),
        # Of MPI jobs; by name and without reading them, see above.
        _rule("", "secrets", ("create", "patch", "delete")),
    ]
    if target in ("statefulset", "job"):
        found.append(_rule("", "services", _MAKE))
    if gang in _POD_GROUPS:
        found.append(_rule(_POD_GROUPS[gang], "podgroups", _MAKE))
    if gang == "kueue":
        found.append(_rule("kueue.x-k8s.io", "workloads", _FOLLOW))  # why a run is waiting
    if target == "trainjob":
        found.append(_rule("jobset.x-k8s.io", "jobsets", _FOLLOW))
    if target in ("jobset", "trainjob"):
        found.append(_rule("batch", "jobs", _FOLLOW))
    return [
        *found,
        _rule("", "pods", (*_FOLLOW, "delete")),
        _rule("", "pods/status", ("patch",)),  # pods of a lost node are released by marking them as failed
        _rule("", "pods/log", ("get",)),
        _rule("", "events", ("list", "watch")),
    ]


def optional_rules(gang: str) -> list[dict[str, Any]]:
    """What a run can do without: an account that lacks it is shown less, and no check reports that."""
    # A run's position in its queue.
    return [_rule("visibility.kueue.x-k8s.io", "localqueues/pendingworkloads", ("get",))] if gang == "kueue" else []


def _known(what: str, given: str, known: Mapping[str, Any] | Sequence[str]) -> None:
    if given not in known:
        raise BadInputError(f"{what}: {given!r} is not known; use one of {', '.join(known)}")


def _rule(group: str, resource: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _service_account(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _NAME, **meta}}
