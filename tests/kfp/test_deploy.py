"""The manifests in deploy/kfp grant the permissions that the components need."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepset.targets.rbac import rbac

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_cluster_role_has_the_rules_of_the_role_and_aggregates_to_kubeflow_edit() -> None:
    found = yaml.safe_load((DEPLOY / "kfp/clusterrole.yaml").read_text())
    assert found["rules"] == rbac("kfp")[0]["rules"]
    assert found["metadata"]["labels"]["rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit"] == "true"
