"""`stepset validate JOB --server`: objects of Kueue that a job names, and that an API server does not check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepset.targets.rbac import Account, rbac
from tests.cluster.queues import queue
from tests.cluster.remedies import granted, reading_classes, remedy
from tests.cluster.test_doctor_queue import finding_of
from tests.cluster.testbed.handle import Cluster
from tests.cluster.validator import Validator

pytestmark = pytest.mark.cluster

CLASS = "kueue.x-k8s.io/priority-class"
WITH_QUEUE: dict[str, Any] = {"resources_per_node": {"cpu": 1}, "scheduling": {"queue_name": "nope"}}


@pytest.fixture
def admin(cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validator:
    monkeypatch.chdir(tmp_path)
    return Validator(tmp_path, Path(cluster.kubeconfig), namespace)


@pytest.fixture
def reader(cluster: Cluster, admin: Validator) -> Validator:
    """An account with the Role of `stepset rbac --gang kueue`."""
    account = Account("trainer")
    cluster.kubectl("create", "serviceaccount", account.name, "-n", admin.namespace)
    items = rbac(gang="kueue", namespace=admin.namespace, accounts=[account])
    cluster.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    token = cluster.kubectl("create", "token", account.name, "-n", admin.namespace).strip()
    return admin.with_user({"token": token})


def test_a_queue_and_a_priority_class_that_do_not_exist(cluster: Cluster, admin: Validator) -> None:
    with queue(cluster, admin.namespace, 1):
        found = admin.refused(**WITH_QUEUE, labels={CLASS: "nope"})
    assert found[0] == (
        f"scheduling.queue_name: LocalQueue 'nope' does not exist in namespace {admin.namespace}; use one that"
        " exists: team-a"
    )
    assert found[1].startswith("labels.kueue.x-k8s.io/priority-class: WorkloadPriorityClass 'nope' does not exist;")
    assert len(found) == 2


def test_the_flag_of_the_command_line(cluster: Cluster, admin: Validator) -> None:
    with queue(cluster, admin.namespace, 1) as name:
        (found,) = admin.refused("--queue", "nope")
        assert found.endswith("; use one that exists: team-a")
        assert admin.validate("--queue", name)[0] == 0


def test_a_namespace_without_a_queue(reader: Validator) -> None:
    (found,) = reader.refused(**WITH_QUEUE)
    assert found.endswith("; none exists; create it")


def test_a_run_that_exceeds_the_quota_of_its_queue_is_refused(
    cluster: Cluster, admin: Validator, reader: Validator
) -> None:
    with queue(cluster, admin.namespace, 1) as name:
        job = {"resources_per_node": {"cpu": 4}, "num_nodes": 20, "scheduling": {"queue_name": name}}
        exceeds = (
            f"ClusterQueue {admin.namespace}: all pods of the run need cpu 80 together, but the quota is 1, so"
            " Kueue can never admit the run; request less, or have the quota raised"
        )
        assert admin.refused(**job) == [exceeds]
        fits = {"resources_per_node": {"cpu": 1}, "num_nodes": 1, "scheduling": {"queue_name": name}}
        assert not [line for line in admin.validate(**fits)[1] if "ClusterQueue" in line]
        note = (
            f"note: the run was not compared with the quota of queue {name}, because you may not read ClusterQueue"
            f" {admin.namespace}; have an administrator run: "
        )
        (found,) = [line for line in reader.validate(**job)[1] if line.startswith(note)]
        command = remedy(found)
        given = f"--target jobset --gang kueue --with quotas --account {reader.namespace}/trainer"
        assert command == f"stepset rbac --namespace {reader.namespace} {given} | kubectl apply -f -"
        with granted(cluster, reader.namespace, "trainer", command):
            cluster.wait("the right", lambda: reader.validate(**job)[0] == 2)
            assert reader.refused(**job) == [exceeds]


def test_a_queue_that_admits_no_run_of_the_namespace(cluster: Cluster, admin: Validator) -> None:
    with queue(cluster, admin.namespace, 1) as name:
        patch = '{"spec": {"namespaceSelector": {"matchLabels": {"team": "b"}}}}'
        cluster.kubectl("patch", "clusterqueue", admin.namespace, "--type=merge", "-p", patch)
        job = {"resources_per_node": {"cpu": 1}, "num_nodes": 1, "scheduling": {"queue_name": name}}
        why = (
            f"ClusterQueue {admin.namespace} admits no run of namespace {admin.namespace}: its namespaceSelector"
            ' {"matchLabels": {"team": "b"}} does not match the labels of the namespace'
        )
        assert admin.refused(**job) == [
            f"scheduling.queue_name: {why}; use another queue, or have the selector changed"
        ]
        cluster.wait("the finding", lambda: finding_of(cluster, admin.namespace, name)["text"] == why)
        cluster.kubectl("label", "namespace", admin.namespace, "team=b")
        assert admin.validate(**job)[0] == 0
        assert finding_of(cluster, admin.namespace, name)["state"] == "ok"


def test_an_inactive_queue_is_a_note(cluster: Cluster, reader: Validator) -> None:
    with queue(cluster, reader.namespace, 1) as name:
        job = {**WITH_QUEUE, "scheduling": {"queue_name": name}}
        assert not [line for line in reader.validate(**job)[1] if "is not active" in line]
        cluster.kubectl(
            "patch",
            "localqueue",
            name,
            "-n",
            reader.namespace,
            "--type=merge",
            "-p",
            '{"spec":{"stopPolicy":"Hold"}}',
        )
        cluster.wait("the stop", lambda: "is stopped" in json.dumps(cluster.get("localqueue", reader.namespace)))
        code, lines = reader.validate(**job)
    assert code == 0
    assert f"note: LocalQueue {name} is not active, so no run starts now: Stopped: LocalQueue is stopped" in lines


def test_what_the_account_may_not_read_is_one_note_with_a_command(cluster: Cluster, reader: Validator) -> None:
    role = cluster.get("role/stepset-kueue", reader.namespace)
    kept = [rule for rule in role["rules"] if rule["resources"] != ["localqueues"]]
    assert len(kept) == len(role["rules"]) - 1
    patch = json.dumps({"rules": kept})
    cluster.kubectl("patch", "role", "stepset-kueue", "-n", reader.namespace, "--type=merge", "-p", patch)
    note = "note: not checked, because you may not read it: LocalQueue nope, WorkloadPriorityClass nope; have an "
    job = {**WITH_QUEUE, "labels": {CLASS: "nope"}}

    def notes() -> list[str]:
        code, lines = reader.validate(**job)
        return [line for line in lines if code == 0 and line.startswith(note)]

    cluster.wait("the removal of the right", lambda: len(notes()) == 1)
    command = remedy(notes()[0])
    given = f"--target jobset --gang kueue --with priorities --account {reader.namespace}/trainer"
    assert command == f"stepset rbac --namespace {reader.namespace} {given} | kubectl apply -f -"
    with reading_classes(cluster, reader.namespace, "trainer", command):
        cluster.wait("the rights", lambda: len(reader.validate(**job)[1]) == 2)
        queue_line, class_line = reader.refused(**job)
    assert "LocalQueue 'nope' does not exist" in queue_line
    assert "WorkloadPriorityClass 'nope' does not exist" in class_line


def test_the_permission_to_read_workloads_is_a_note(cluster: Cluster, reader: Validator) -> None:
    """A submission does not need this permission. Without it, the run does not show why it waits."""
    role = cluster.get("role/stepset-kueue", reader.namespace)
    patch = json.dumps({"rules": [rule for rule in role["rules"] if rule["resources"] != ["workloads"]]})
    cluster.kubectl("patch", "role", "stepset-kueue", "-n", reader.namespace, "--type=merge", "-p", patch)
    with queue(cluster, reader.namespace, 1) as name:
        job = {"resources_per_node": {"cpu": 1}, "num_nodes": 1, "scheduling": {"queue_name": name}}

        def notes() -> list[str]:
            code, lines = reader.validate(**job)
            assert code == 0, lines
            return [line for line in lines if line.startswith("note: diagnoses may lack details: rbac: ")]

        cluster.wait("the removal of the right", lambda: len(notes()) == 1)
        (note,) = notes()
    assert "may not get, list, watch workloads.kueue.x-k8s.io in namespace" in note
    assert remedy(note).startswith(f"stepset rbac --namespace {reader.namespace} --target jobset --gang kueue ")


def test_a_priority_class_that_does_not_exist_is_found_without_the_permission_to_create_pods(
    cluster: Cluster, reader: Validator
) -> None:
    job = {"resources_per_node": {"cpu": 1}, "scheduling": {"priority_class": "nope"}}
    with reading_classes(cluster, reader.namespace, "trainer"):
        cluster.wait("the permission", lambda: reader.validate(**job)[0] == 2)
        (found,) = reader.refused(**job)
    assert found.startswith("scheduling.priority_class: PriorityClass 'nope' does not exist; ")
    assert "system-node-critical" not in found


def test_the_queue_is_checked_for_each_target_with_its_label(admin: Validator) -> None:
    for target in ("trainjob", "statefulset", "job"):
        assert any("LocalQueue 'nope'" in line for line in admin.refused("--target", target, **WITH_QUEUE))
