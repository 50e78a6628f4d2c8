"""Renders the Roles and RoleBindings of accounts that submit, watch and delete runs.

Permissions that only some runs need are in separate Roles. Each account has RoleBindings of its own. Therefore applying
the output for one account does not change the permissions of other accounts. deploy/rbac/ contains the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepset.errors import BadInputError
from stepset.safe_names import label_value, path_segment
from stepset.targets.request import check_target
from stepset.targets.validation.syntax import namespace_problem
from stepset.targets.workload_kinds import WORKLOAD_KINDS, ApiKind

Backend = Literal["airflow", "kfp", "cli"]

_NAME = "stepset"
ORPHAN_ACCOUNT = "stepset-orphan"
"""The service account of the pods that watch the owners of runs (docs/design/orphans.md)."""
_RBAC = "rbac.authorization.k8s.io"
_KUEUE, _VISIBILITY = "kueue.x-k8s.io", "visibility.kueue.x-k8s.io"
_ACCOUNT_LABELS = {"ServiceAccount": "service-account", "User": "user", "Group": "group"}
_MAKE = ("create", "get", "patch", "delete")
_FOLLOW = ("get", "list", "watch")
_RUN = (*_FOLLOW, "create", "patch", "delete")

_POD_GROUPS = {"coscheduling": "scheduling.x-k8s.io", "volcano": "scheduling.volcano.sh"}


@dataclass(frozen=True)
class Account:
    """An account to which the Roles are granted.

    Args:
        namespace: the namespace of a service account. None means the namespace of the runs.
        kind: the `kind` of the account in a RoleBinding, such as ServiceAccount.
    """

    name: str
    namespace: str | None = None
    kind: Literal["ServiceAccount", "User", "Group"] = "ServiceAccount"

    def subject(self, namespace: str) -> dict[str, Any]:
        """Returns the account as the subject of a RoleBinding.

        Args:
            namespace: the namespace of the runs.
        """
        if self.kind == "ServiceAccount":
            return {"kind": self.kind, "name": self.name, "namespace": self.namespace or namespace}
        return {"apiGroup": _RBAC, "kind": self.kind, "name": self.name}

    def label(self, namespace: str) -> dict[str, str]:
        """Returns the label of all RoleBindings of the account.

        The value is the name of the account; for a service account, the value is `NAMESPACE.NAME`. If the name is not
        allowed as the value of a label, the value contains a hash of the name. The names of namespaces contain no dots.

        Args:
            namespace: the namespace of the runs.

        >>> Account("trainer", "ci").label("ml")
        {'stepset.dev/service-account': 'ci.trainer'}
        >>> Account("jane@example.com", kind="User").label("ml")
        {'stepset.dev/user': 'janeexample.com-9e26471d3'}
        """
        name = f"{self.namespace or namespace}.{self.name}" if self.kind == "ServiceAccount" else self.name
        return {f"stepset.dev/{_ACCOUNT_LABELS[self.kind]}": label_value(name)}


# The default accounts of each backend. For Airflow, these are the accounts of the workers and of the triggerer in
# Airflow's Helm chart. The triggerer needs the Roles because it stops the runs of deferred tasks. For KFP, this is the
# account of the steps of a pipeline.
_ACCOUNTS: Mapping[str, tuple[Account, ...]] = {
    "airflow": (Account("airflow-worker", "airflow"), Account("airflow-triggerer", "airflow")),
    "kfp": (Account("pipeline-runner"),),
    "cli": (Account(_NAME),),
}


# Additional rules of each backend. The steps of KFP check whether several nodes can mount the workspace.
_OF_BACKEND: Mapping[str, tuple[dict[str, Any], ...]] = {
    "kfp": ({"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},),
}
_GANGS = ("none", "kueue", *_POD_GROUPS)


def rbac(
    backend: Backend | str = "cli",
    *,
    targets: Sequence[str] = ("jobset",),
    read_only: bool = False,
    gang: str = "none",
    mpi: bool = False,
    lost_node: bool = False,
    network_policy: bool = False,
    exec: bool = False,
    orphan: bool = False,
    validate: bool = False,
    priorities: bool = False,
    quotas: bool = False,
    namespace: str = "default",
    accounts: Sequence[Account] = (),
    bindings_only: bool = False,
    create_namespace: bool = False,
    create_service_account: bool = False,
) -> list[dict[str, Any]]:
    """Returns the Roles. For each Role, also returns a RoleBinding for each account.

    If the backend is `cli` and no accounts are given, the result also contains a ServiceAccount for the CLI.

    Args:
        backend: the interface that submits the runs. One of airflow, kfp and cli.
        targets: the kinds of workloads that the accounts may create.
        read_only: whether the accounts may only read runs and their logs.
        gang: the gang scheduler. One of none, kueue, coscheduling and volcano.
        mpi: whether jobs may use MPI. MPI jobs have a Secret with ssh keys.
        lost_node: whether jobs may have `restart.lost_node: release`.
        network_policy: whether jobs may have `network.policy: true`.
        exec: whether the accounts may run commands in the pods (`stepset exec`).
        orphan: whether runs may have `on_orphan: stop`. If True, the result also contains the service account of the
            pods that watch the owners of runs.
        validate: whether the accounts may create pods and list ResourceQuotas. `stepset validate --server` creates pods
            in a dry run, and compares the requests of a run with the quotas.
        priorities: whether the accounts may read PriorityClasses and WorkloadPriorityClasses. These classes belong to
            no namespace, so the result contains a ClusterRole and ClusterRoleBindings.
        quotas: whether the accounts may read Kueue's ClusterQueues, which contain the quotas of the queues. Like
            `priorities`, this needs a ClusterRole and ClusterRoleBindings.
        namespace: the namespace of the runs.
        accounts: the accounts to which the Roles are granted. By default, these are the accounts of a standard
            installation of the backend.
        bindings_only: whether to return only the RoleBindings. Use this if the Roles already exist.
        create_namespace: whether the result contains the namespace of the runs.
        create_service_account: whether the result contains ServiceAccount objects for the service accounts in
            `accounts`.

    Raises:
        BadInputError: the backend, target or gang is unknown, or the name of a namespace is invalid.
    """
    _known("backend", backend, _ACCOUNTS)
    for target in targets:
        check_target(target)
    _known("gang", gang, _GANGS)
    places = [namespace, *(each.namespace for each in accounts if each.namespace is not None)]
    if wrong := next(filter(None, map(namespace_problem, places)), None):
        raise BadInputError(wrong)
    who = tuple(accounts) or _ACCOUNTS[backend]
    meta = {"namespace": namespace, "labels": {"app.kubernetes.io/name": _NAME}}
    roles: dict[str, Sequence[Mapping[str, Any]]]
    if read_only:
        roles = {f"{_NAME}-read-{target}": _read_rules(target) for target in targets}
    else:
        roles = {f"{_NAME}-{target}": base_rules(target) for target in targets}
    roles |= {f"{_NAME}-{name}": found for name, found in _optional(gang, mpi, lost_node, network_policy).items()}
    if exec:
        # For a WebSocket, API servers require the verb `get`. From Kubernetes 1.35 on, they also require `create`
        # (kubernetes pkg/features, AuthorizePodWebsocketUpgradeCreatePermission).
        roles[f"{_NAME}-exec"] = [_rule("", "pods/exec", ("create", "get"))]
    if validate:
        roles[f"{_NAME}-validate"] = [_rule("", "pods", ("create",)), _rule("", "resourcequotas", ("list",))]
    if orphan:
        roles[ORPHAN_ACCOUNT] = _CREATE_WATCHERS
    if backend in _OF_BACKEND:
        roles[f"{_NAME}-{backend}"] = list(_OF_BACKEND[backend])
    cluster_wide = ((priorities, "priorities", _PRIORITIES), (quotas, "quotas", _QUOTAS))
    cluster_roles = {f"{_NAME}-{name}": found for wanted, name, found in cluster_wide if wanted}
    if bindings_only:
        wide = (_cluster_wide(_binding(role, account, namespace, meta)) for role in cluster_roles for account in who)
        return [*(_binding(role, account, namespace, meta) for role in roles for account in who), *wide]
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}] if create_namespace else []
    if backend == "cli" and not accounts:
        made.append(_service_account(meta))
    if create_service_account:
        created = [each for each in accounts if each.kind == "ServiceAccount"]
        made += [_service_account({**meta, "namespace": each.namespace or namespace}, each.name) for each in created]
    made += _granted(roles, who, namespace, meta)
    made += map(_cluster_wide, _granted(cluster_roles, who, namespace, meta))
    if orphan:
        made.append(_service_account(meta, ORPHAN_ACCOUNT))
        made += _granted(_of_watchers(targets), (Account(ORPHAN_ACCOUNT),), namespace, meta)
    return made


def _granted(
    roles: Mapping[str, Sequence[Mapping[str, Any]]], who: Sequence[Account], namespace: str, meta: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the Roles. Each Role is followed by its RoleBindings.

    Args:
        roles: a mapping from the names of the Roles to their rules.
    """
    made: list[dict[str, Any]] = []
    for name, found in roles.items():
        role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": name, **meta}, "rules": list(found)}
        made += [role, *(_binding(name, account, namespace, meta) for account in who)]
    return made


def _cluster_wide(made: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a Role as a ClusterRole, or a RoleBinding as a ClusterRoleBinding.

    The name of a ClusterRoleBinding contains the namespace of the runs. Therefore deleting the bindings for one
    namespace does not change the permissions for other namespaces.
    """
    metadata = {key: value for key, value in made["metadata"].items() if key != "namespace"}
    found = {**made, "kind": f"Cluster{made['kind']}", "metadata": metadata}
    if "roleRef" not in made:
        return found
    role = made["roleRef"]["name"]
    metadata["name"] = f"{role}:{made['metadata']['namespace']}{metadata['name'].removeprefix(role)}"
    return found | {"roleRef": {**made["roleRef"], "kind": "ClusterRole"}}


def _of_watchers(targets: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns a mapping from the names of Roles to their rules, for the pods that watch the owners of runs.

    Such a pod reads a run and the owner of the run. If the owner no longer exists, the pod suspends or deletes the run.
    """
    found = {f"{ORPHAN_ACCOUNT}-owners": [_rule("", "pods", ("get",)), _rule("argoproj.io", "workflows", ("get",))]}
    for target in targets:
        found[f"{ORPHAN_ACCOUNT}-{target}"] = [_rule_for(WORKLOAD_KINDS[target].api, ("get", "patch", "delete"))]
    return found


def rules(
    target: str,
    gang: str,
    *,
    mpi: bool = False,
    lost_node: bool = False,
    network_policy: bool = False,
    read_only: bool = False,
) -> list[dict[str, Any]]:
    """Returns the rules that an account needs for a run with the given target.

    The result does not contain the optional rules for reading a queue and the position of a run in the queue.

    Args:
        target: one of the `targets` of `rbac`.
        gang, mpi, lost_node, network_policy, read_only: the same arguments as those of `rbac`.
    """
    optional = _optional(gang, mpi, lost_node, network_policy).values()
    base = _read_rules(target) if read_only else base_rules(target)
    return [*base, *(rule for found in optional for rule in found if not _names_queues(rule))]


def _names_queues(rule: Mapping[str, Any]) -> bool:
    return all(each.startswith("localqueues") for each in rule["resources"])


def base_rules(target: str) -> list[dict[str, Any]]:
    """Returns the rules that an account needs for all runs with the given target."""
    kind = WORKLOAD_KINDS[target]
    return [
        *(_rule_for(each, _RUN) for each in dict.fromkeys((kind.api, kind.templates))),
        _rule("", "configmaps", _MAKE),
        *([_rule("", "services", _MAKE)] if kind.service else []),
        *(_rule_for(each, _FOLLOW) for each, _ in kind.followed),
        _rule("", "pods", (*_FOLLOW, "delete")),
        _rule("", "pods/log", ("get",)),
        _rule("", "events", ("list", "watch")),
    ]


def _read_rules(target: str) -> list[dict[str, Any]]:
    """Returns the rules that an account needs to read all runs with the given target."""
    rules = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb in _FOLLOW]} for rule in base_rules(target)]
    return [rule for rule in rules if rule["resources"] not in (["configmaps"], ["services"])]


def _optional(gang: str, mpi: bool, lost_node: bool, network_policy: bool) -> dict[str, list[dict[str, Any]]]:
    """Returns the rules that only some runs need, as a mapping from the names of Roles to their rules."""
    found: dict[str, list[dict[str, Any]]] = {}
    if gang == "kueue":
        # With these rules, stepset can check that the LocalQueue exists. It can also show why a run waits, and which
        # position the run has in the queue.
        found["kueue"] = [
            FOR_DIAGNOSES,
            _rule(_KUEUE, "localqueues", ("get", "list")),
            _rule(_VISIBILITY, "localqueues/pendingworkloads", ("get",)),
        ]
    elif gang in _POD_GROUPS:
        found[gang] = [_rule(_POD_GROUPS[gang], "podgroups", _MAKE)]
    if mpi:
        # The rule does not allow `patch`, because the permission would apply to all Secrets of the namespace, and the
        # response to a patch contains the whole Secret.
        found["mpi"] = [_rule("", "secrets", ("create", "delete"))]
    if lost_node:
        # If a node is lost, stepset sets the phase of its pods to Failed before it deletes them with force.
        found["lost-node"] = [_rule("", "pods/status", ("patch",))]
    if network_policy:
        found["network-policy"] = [_rule("networking.k8s.io", "networkpolicies", ("create", "get", "delete"))]
    return found


def _binding(role: str, account: Account, namespace: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    subject = account.subject(namespace)
    # Colons separate the parts of a RoleBinding's name, so the RoleBindings of different accounts have different names.
    # `Group` differs from all names of namespaces, because the names of namespaces contain no capital letters.
    owner = account.kind if account.kind == "Group" else subject.get("namespace")
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": ":".join(filter(None, (role, owner, path_segment(account.name)))),
            **meta,
            "labels": {**meta["labels"], **account.label(namespace)},
        },
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [subject],
    }


def _known(what: str, given: str, known: Mapping[str, Any] | Sequence[str]) -> None:
    if given not in known:
        raise BadInputError(f"{what}: {given!r} is not known; use one of {', '.join(known)}")


def _rule(group: str, resource: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _rule_for(kind: ApiKind, verbs: Sequence[str]) -> dict[str, Any]:
    return _rule(kind.group, kind.plural, verbs)


def _service_account(meta: Mapping[str, Any], name: str = _NAME) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **meta}}


FOR_DIAGNOSES = _rule(_KUEUE, "workloads", _FOLLOW)
"""A rule in the result of `rules` that a submission does not need. Without this rule, diagnoses may lack details."""
_PRIORITIES = (
    _rule("scheduling.k8s.io", "priorityclasses", ("get", "list")),
    _rule(_KUEUE, "workloadpriorityclasses", ("get", "list")),
)
_QUOTAS = (_rule(_KUEUE, "clusterqueues", ("get",)),)
_CREATE_WATCHERS = (
    _rule("batch", "jobs", ("create",)),
    {**_rule("", "serviceaccounts", ("get",)), "resourceNames": [ORPHAN_ACCOUNT]},
)
