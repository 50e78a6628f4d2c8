"""Accounts of a namespace: one with the rights of `stepset rbac`, and one that may only create and read pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.conftest import cluster, namespace, runs, stage, testbed_choice, volcano
from tests.cluster.runs import Runs, kubeconfig_of
from tests.cluster.testbed.objects import Objects

__all__ = ["cluster", "namespace", "runs", "stage", "testbed_choice", "volcano"]  # the fixtures of tests/cluster
_NAME = "pod-creator"
_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def pod_creator(runs: Runs, tmp_path: Path) -> Iterator[Objects]:
    """The API with an account that may create, get and list pods in the namespace of the runs, and nothing else."""
    where, objects = {"namespace": runs.namespace}, runs.cluster.objects
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list"]}]
    subject = {"kind": "ServiceAccount", "name": _NAME, **where}
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": _NAME}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "rules": rules},
        {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    ]
    for each in made:
        objects.create({**each, "metadata": {"name": _NAME, **where}}, runs.namespace)
    path = tmp_path / "pod-creator.kubeconfig"
    path.write_text(
        yaml.safe_dump(kubeconfig_of(runs.cluster, objects.token(_NAME, runs.namespace, 7200), runs.namespace))
    )
    yield Objects(str(path))
