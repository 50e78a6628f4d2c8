"""The minimal Role: sufficient for a run's objects, without permission to read Secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.targets.dump import to_yaml
from stepset.targets.rbac import Account, rbac, rules
from tests.targets.making import of_kind, rendered

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


def _verbs(**how: Any) -> dict[tuple[str, str], list[str]]:
    rules = of_kind(rbac(**how), "Role")["rules"]
    return {(rule["apiGroups"][0], rule["resources"][0]): rule["verbs"] for rule in rules}


@pytest.mark.parametrize("target", ["jobset", "trainjob", "statefulset", "job", "volcano"])
def test_the_role_can_create_own_and_delete_every_rendered_object(target: str) -> None:
    gang = {} if target == "volcano" else {"gang": "coscheduling"}
    framework = "mpi" if target in ("jobset", "trainjob", "volcano") else "torch"
    objects = rendered(target, framework=framework, procs_per_node=1, num_nodes=2, scheduling=gang)
    verbs = _verbs(target=target, gang="coscheduling")
    for each in objects:
        kind = each["kind"]
        jobs = {"batch/v1": ("batch", "jobs"), "batch.volcano.sh/v1alpha1": ("batch.volcano.sh", "jobs")}
        where = jobs[each["apiVersion"]] if kind == "Job" else GROUP_OF[kind]
        assert {"create", "patch", "delete"} <= set(verbs[where]), kind


def test_secrets_cannot_be_read() -> None:
    assert _verbs()["", "secrets"] == ["create", "patch", "delete"]


def test_no_rule_contains_a_wildcard() -> None:
    for backend in ("cli", "airflow", "kfp"):
        for each in rbac(backend):
            assert "*" not in str(each)
            assert not each["kind"].startswith("Cluster")


def test_pods_can_be_read_and_pods_of_a_lost_node_deleted() -> None:
    verbs = _verbs()
    assert verbs["", "pods"] == ["get", "list", "watch", "delete"]
    assert verbs["", "pods/status"] == ["patch"]
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
        return [f"{s['namespace']}/{s['name']}" for s in of_kind(rbac(**how), "RoleBinding")["subjects"]]

    assert subjects(backend="airflow", namespace="ml") == ["airflow/airflow-worker", "airflow/airflow-triggerer"]
    assert subjects(backend="kfp", namespace="ml") == ["ml/pipeline-runner"]
    assert subjects(backend="cli", namespace="ml") == ["ml/stepset"]
    assert subjects(backend="kfp", accounts=[Account("a", "b")]) == ["b/a"]


def test_only_the_clis_account_is_created() -> None:
    assert [each["kind"] for each in rbac("cli")] == ["ServiceAccount", "Role", "RoleBinding"]
    assert [each["kind"] for each in rbac("airflow")] == ["Role", "RoleBinding"]


@pytest.mark.parametrize("backend", ["airflow", "kfp", "cli"])
def test_deploy_rbac_equals_the_output(backend: str) -> None:
    path = DEPLOY / f"{backend}.yaml"
    assert path.read_text(encoding="utf-8") == to_yaml(rbac(backend)), "run `make golden`"


@pytest.mark.parametrize(("field", "value"), [("backend", "x"), ("target", "x"), ("gang", "x")])
def test_unknown_values_are_rejected(field: str, value: str) -> None:
    with pytest.raises(BadInputError, match=f"^{field}: 'x' is not known; use one of "):
        rbac(**{field: value})
