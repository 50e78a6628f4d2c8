"""The minimal Role: sufficient for a run's objects, without permission to read Secrets."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.targets.dump import to_yaml
from stepset.targets.rbac import Account, rbac, rules
from stepset.targets.request import TARGET_NAMES
from tests.fuzzing import FUZZED
from tests.targets.making import rendered

DEPLOY = Path(__file__).parents[2] / "deploy" / "rbac"
GROUP_OF = {
    "ConfigMap": ("", "configmaps"),
    "Secret": ("", "secrets"),
    "Service": ("", "services"),
    "PodGroup": ("scheduling.x-k8s.io", "podgroups"),
    "JobSet": ("jobset.x-k8s.io", "jobsets"),
    "TrainJob": ("trainer.kubeflow.org", "trainjobs"),
    "TrainingRuntime": ("trainer.kubeflow.org", "trainingruntimes"),
    "StatefulSet": ("apps", "statefulsets"),
}


def _verbs(target: str = "jobset", **how: Any) -> dict[tuple[str, str], list[str]]:
    how["targets"] = [target]
    roles = [each for each in rbac(**how) if each["kind"] == "Role"]
    return {(rule["apiGroups"][0], rule["resources"][0]): rule["verbs"] for role in roles for rule in role["rules"]}


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_role_can_create_own_and_delete_every_rendered_object(target: str) -> None:
    gang = {} if target == "volcano" else {"gang": "coscheduling"}
    framework = "mpi" if target in ("jobset", "trainjob", "volcano") else "torch"
    objects = rendered(target, framework=framework, procs_per_node=1, num_nodes=2, scheduling=gang)
    verbs = _verbs(target=target, gang="coscheduling", mpi=True)
    for each in objects:
        kind = each["kind"]
        jobs = {"batch/v1": ("batch", "jobs"), "batch.volcano.sh/v1alpha1": ("batch.volcano.sh", "jobs")}
        where = jobs[each["apiVersion"]] if kind == "Job" else GROUP_OF[kind]
        needed = {"create", "delete"} if kind == "Secret" else {"create", "patch", "delete"}
        assert needed <= set(verbs[where]), kind


def test_secrets_can_be_created_and_deleted_only_by_accounts_that_run_mpi() -> None:
    assert ("", "secrets") not in _verbs()
    assert _verbs(mpi=True)["", "secrets"] == ["create", "delete"]


def test_no_right_that_only_some_runs_need_is_granted_by_default() -> None:
    found = {resource for _, resource in _verbs()}
    assert found == {"jobsets", "jobs", "configmaps", "pods", "pods/log", "events"}


def test_no_role_or_binding_replaces_that_of_another_call() -> None:
    """Roles of one name are equal, and a binding of one name has the same subject."""
    found: dict[tuple[str, str], Any] = {}
    accounts = [Account("a-b", "c"), Account("a", "b-c"), Account("jane", kind="User"), Account("jane", kind="Group")]
    for backend, target, gang in product(("cli", "kfp"), ("jobset", "job"), ("none", "kueue", "volcano")):
        for mpi, account in product((False, True), accounts):
            made = rbac(backend, targets=[target], gang=gang, mpi=mpi, lost_node=mpi, accounts=[account])
            for each in made:
                key = each["kind"], each["metadata"]["name"]
                assert found.setdefault(key, each) == each


def test_no_rule_contains_a_wildcard() -> None:
    for backend in ("cli", "airflow", "kfp"):
        for each in rbac(backend):
            assert "*" not in str(each)
            assert not each["kind"].startswith("Cluster")


def test_pods_can_be_read_and_pods_of_a_lost_node_deleted() -> None:
    verbs = _verbs()
    assert verbs["", "pods"] == ["get", "list", "watch", "delete"]
    assert ("", "pods/status") not in verbs
    assert _verbs(lost_node=True)["", "pods/status"] == ["patch"]
    assert verbs["", "pods/log"] == ["get"]
    assert verbs["", "events"] == ["list", "watch"]


def test_workloads_of_kueue_can_be_read_only_with_gang_kueue() -> None:
    assert ("kueue.x-k8s.io", "workloads") in _verbs(gang="kueue")
    assert ("kueue.x-k8s.io", "workloads") not in _verbs(gang="none")


def test_the_position_in_a_queue_is_granted_but_not_required() -> None:
    place = ("visibility.kueue.x-k8s.io", "localqueues/pendingworkloads")
    assert _verbs(gang="kueue")[place] == ["get"]
    assert place not in _verbs(gang="none")
    assert place[0] not in str(rules("jobset", "kueue")), "`validate --server` checks these"


def test_queues_can_be_read_and_need_not_be() -> None:
    assert _verbs(gang="kueue")["kueue.x-k8s.io", "localqueues"] == ["get", "list"]
    assert ("kueue.x-k8s.io", "localqueues") not in _verbs(gang="none")
    assert "localqueues" not in str(rules("jobset", "kueue")), "`validate --server` checks these"


def test_priority_classes_can_be_read_with_a_cluster_role_on_request() -> None:
    account = Account("trainer")
    without, made = (rbac(namespace="ml", accounts=[account], priorities=each) for each in (False, True))
    assert made[: len(without)] == without
    role, binding = made[len(without) :]
    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    assert {(rule["resources"][0], *rule["verbs"]) for rule in role["rules"]} == {
        ("priorityclasses", "get", "list"),
        ("workloadpriorityclasses", "get", "list"),
    }
    assert "namespace" not in role["metadata"] and "namespace" not in binding["metadata"]
    assert binding["roleRef"]["kind"] == "ClusterRole" and binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trainer", "namespace": "ml"}]
    assert rbac(namespace="ml", accounts=[account], priorities=True, bindings_only=True)[-1] == binding


def test_quotas_can_be_read_with_a_cluster_role_of_its_own_on_request() -> None:
    role, binding = rbac(namespace="ml", accounts=[Account("jane", kind="User")], quotas=True)[-2:]
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", "stepset-quotas")
    assert role["rules"] == [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues"], "verbs": ["get"]}]
    assert binding["roleRef"] == {**binding["roleRef"], "kind": "ClusterRole", "name": "stepset-quotas"}
    assert binding["metadata"]["name"] == "stepset-quotas:ml:jane"


@pytest.mark.parametrize(
    "account", [Account("trainer", "ci"), Account("jane", kind="User"), Account("ml", kind="Group")], ids=str
)
def test_each_namespace_has_a_cluster_role_binding_of_its_own(account: Account) -> None:
    made = [rbac(namespace=each, accounts=[account], priorities=True)[-1] for each in ("ml", "nlp")]

    assert [each["kind"] for each in made] == ["ClusterRoleBinding"] * 2
    names = [each["metadata"]["name"] for each in made]
    assert len(set(names)) == 2
    assert [name.split(":")[:2] for name in names] == [["stepset-priorities", "ml"], ["stepset-priorities", "nlp"]]


def test_the_role_is_bound_to_the_accounts_of_the_backend() -> None:
    def subjects(**how: Any) -> list[str]:
        bindings = [each for each in rbac(**how) if each["kind"] == "RoleBinding"]
        subjects = [subject for each in bindings for subject in each["subjects"]]
        return list(dict.fromkeys(f"{s['namespace']}/{s['name']}" for s in subjects))

    assert subjects(backend="airflow", namespace="ml") == ["airflow/airflow-worker", "airflow/airflow-triggerer"]
    assert subjects(backend="kfp", namespace="ml") == ["ml/pipeline-runner"]
    assert subjects(backend="cli", namespace="ml") == ["ml/stepset"]
    assert subjects(backend="kfp", accounts=[Account("a", "b")]) == ["b/a"]


def test_only_the_clis_account_is_created() -> None:
    assert [each["kind"] for each in rbac("cli")] == ["ServiceAccount", "Role", "RoleBinding"]
    assert [each["kind"] for each in rbac("airflow")] == ["Role", "RoleBinding", "RoleBinding"]


def test_the_namespace_and_the_given_service_accounts_are_created_on_request_before_the_roles() -> None:
    accounts = [
        Account("trainer"),
        Account("builder", "ci"),
        Account("jane", kind="User"),
        Account("team", kind="Group"),
    ]
    without = rbac(namespace="ml", accounts=accounts)
    made = rbac(namespace="ml", accounts=accounts, create_namespace=True, create_service_account=True)
    new = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in made[:3]]
    assert new == [("Namespace", None, "ml"), ("ServiceAccount", "ml", "trainer"), ("ServiceAccount", "ci", "builder")]
    assert made[3:] == without
    # `kubectl delete --selector app.kubernetes.io/name=stepset` must not select a namespace.
    assert "labels" not in made[0]["metadata"]


def test_the_commands_of_the_guide_list_every_object_that_no_namespace_contains() -> None:
    """docs/guides/administration.md lists them by their label, and the bindings by the beginning of their names."""
    made = rbac(
        namespace="ml",
        accounts=[Account("builder", "ci")],
        orphan=True,
        priorities=True,
        quotas=True,
        create_service_account=True,
    )
    others = [each for each in made if each["metadata"].get("namespace") != "ml"]
    assert {each["kind"] for each in others} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    assert all(each["metadata"]["labels"]["app.kubernetes.io/name"] == "stepset" for each in others)
    bindings = [each["metadata"]["name"] for each in others if each["kind"] == "ClusterRoleBinding"]
    guide = (Path(__file__).parents[2] / "docs/guides/administration.md").read_text(encoding="utf-8")
    starts = ("stepset-priorities:ml:", "stepset-quotas:ml:")
    assert "names begin with `stepset-priorities:ml:` or `stepset-quotas:ml:`" in " ".join(guide.split())
    assert len(bindings) == 2 and all(name.startswith(starts) for name in bindings)


@pytest.mark.parametrize(
    ("account", "selector"),
    [
        (Account("jane", kind="User"), ("stepset.dev/user", "jane")),
        (Account("jane"), ("stepset.dev/service-account", "ml.jane")),
        (Account("jane", kind="Group"), ("stepset.dev/group", "jane")),
    ],
    ids=str,
)
def test_one_label_selects_every_binding_of_an_account(account: Account, selector: tuple[str, str]) -> None:
    others = [Account("jane", "ci"), Account("ml.jane", kind="User"), Account("joe", kind="Group")]
    made = rbac(
        namespace="ml", accounts=[account, *others], gang="kueue", exec=True, orphan=True, priorities=True, mpi=True
    )
    bindings = [each for each in made if each["kind"].endswith("Binding")]
    own = [each for each in bindings if each["subjects"] == [account.subject("ml")]]
    assert len(own) == 6
    assert [each for each in made if selector in each["metadata"].get("labels", {}).items()] == own


@given(st.text(min_size=1), st.sampled_from(["ServiceAccount", "User", "Group"]))
@FUZZED
def test_the_label_of_every_account_is_valid(name: str, kind: Any) -> None:
    """Source: apimachinery pkg/util/validation/validation.go (IsValidLabelValue)."""
    (value,) = Account(name, kind=kind).label("ml").values()
    assert len(value) <= 63 and re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", value)


@pytest.mark.parametrize("backend", ["airflow", "kfp", "cli"])
def test_deploy_rbac_equals_the_output(backend: str) -> None:
    path = DEPLOY / f"{backend}.yaml"
    assert path.read_text(encoding="utf-8") == to_yaml(rbac(backend)), "run `make golden`"


@pytest.mark.parametrize("how", [{"backend": "x"}, {"targets": ["job", "x"]}, {"gang": "x"}])
def test_unknown_values_are_rejected(how: dict[str, Any]) -> None:
    (name,) = how
    with pytest.raises(BadInputError, match=f"^{name.removesuffix('s')}: 'x' is not known; use one of "):
        rbac(**how)


def test_several_targets_are_the_roles_of_each() -> None:
    both, account = rbac(targets=["job", "jobset"], accounts=[Account("a")]), [Account("a")]
    assert both == [*rbac(targets=["job"], accounts=account), *rbac(targets=["jobset"], accounts=account)]


def test_names_of_bindings_are_valid_for_every_name_of_a_user_and_differ() -> None:
    """No name of a RoleBinding may contain a slash or a percent sign, because it is a segment of a path."""
    users = ["jane", "Jane Doe", "https://a/b", "https://a_b", "https:__a_b", "a%b", "a/b", "a\nb", "x/" * 300]
    made = [rbac(accounts=[Account(each, kind="User")])[-1] for each in users]
    names = [each["metadata"]["name"] for each in made]
    assert names[:2] == ["stepset-jobset:jane", "stepset-jobset:Jane Doe"]
    assert len(set(names)) == len(users)
    assert not any(set(each) & set("/%\n") or len(each) > 253 for each in names)
    assert [each["subjects"][0]["name"] for each in made] == users


def test_the_binding_of_a_user_replaces_none_of_a_service_account() -> None:
    account, user = Account("worker", "airflow"), Account("airflow:worker", kind="User")
    names = [each["metadata"]["name"] for each in rbac(accounts=[account, user]) if each["kind"] == "RoleBinding"]
    assert len(set(names)) == len(names) == 2
