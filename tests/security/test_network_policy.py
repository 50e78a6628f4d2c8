"""`network.policy` admits connections to a run's pods from the run's own pods only."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.kubernetes.api.resources import resource_of
from stepset.targets.metadata import RUN
from stepset.targets.rbac import rules
from stepset.targets.request import TARGET_NAMES
from tests.targets.making import of_kind, rendered

TARGETS = TARGET_NAMES
POLICY: dict[str, Any] = {"network": {"policy": True}}


def pod_labels(manifest: Any) -> list[dict[str, str]]:
    """Returns the labels of every pod template below a manifest."""
    if isinstance(manifest, list):
        return [found for each in manifest for found in pod_labels(each)]
    if not isinstance(manifest, dict):
        return []
    own = [manifest["metadata"].get("labels", {})] if "containers" in manifest.get("spec", {}) else []
    return [*own, *(found for each in manifest.values() for found in pod_labels(each))]


@pytest.mark.parametrize("target", TARGETS)
def test_the_policy_selects_all_pods_of_the_run_and_admits_only_them(target: str) -> None:
    roles = {} if target in ("job", "statefulset") else {"roles": [{"name": "cache", "command": ["redis-server"]}]}
    objects = rendered(target, framework="torch", num_nodes=2, **roles, **POLICY)
    policy = of_kind(objects, "NetworkPolicy")
    selector = {"podSelector": {"matchLabels": {RUN: "digits"}}}
    assert policy["spec"] == {**selector, "policyTypes": ["Ingress"], "ingress": [{"from": [selector]}]}
    templates = pod_labels(objects)
    assert len(templates) == (1 if not roles else 2)
    assert all(labels[RUN] == "digits" for labels in templates)
    assert objects[0] is policy, "it exists before the pods can start"


def test_the_policy_covers_the_launcher_and_the_ssh_servers_of_mpi() -> None:
    templates = pod_labels(rendered("jobset", framework="mpi", num_nodes=2, **POLICY))
    assert [labels[RUN] for labels in templates] == ["digits", "digits"]


def test_there_is_no_policy_unless_the_job_requests_one() -> None:
    assert not [each for each in rendered("jobset", num_nodes=2) if each["kind"] == "NetworkPolicy"]


def test_the_right_is_granted_only_when_requested() -> None:
    def granted(network_policy: bool) -> list[Any]:
        found = rules("jobset", "none", network_policy=network_policy)
        return [rule["verbs"] for rule in found if rule["resources"] == ["networkpolicies"]]

    assert granted(False) == []
    assert granted(True) == [["create", "get", "delete"]]
    assert resource_of({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}).path("ml") == (
        "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies"
    )
