"""The minimal Role: sufficient for a run's objects, without permission to read Secrets."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.targets.dump import to_yaml
from stepset.targets.rbac import Account, rbac, rules
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


@pytest.mark.parametrize("target", ["jobset", "trainjob", "statefulset", "job", "volcano"])
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
    accounts = [Account("a-b", "c"), Account("a", "b-c"), Account("jane", user=True)]
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
    made = [rbac(accounts=[Account(each, user=True)])[-1] for each in users]
    names = [each["metadata"]["name"] for each in made]
    assert names[:2] == ["stepset-jobset:jane", "stepset-jobset:Jane Doe"]
    assert len(set(names)) == len(users)
    assert not any(set(each) & set("/%\n") or len(each) > 253 for each in names)
    assert [each["subjects"][0]["name"] for each in made] == users
