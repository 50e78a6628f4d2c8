"""What is deployed for the components says what the code needs."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepset.targets.rbac import rbac

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPONENTS = DEPLOY.parent / "components" / "stepset_kfp" / "training"


def test_the_cluster_role_gives_what_the_role_gives_and_joins_kubeflow_edit() -> None:
    found = yaml.safe_load((DEPLOY / "kfp/clusterrole.yaml").read_text())
    assert found["rules"] == rbac("kfp")[0]["rules"]
    assert found["metadata"]["labels"]["rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit"] == "true"


def test_each_component_says_what_kubeflows_catalogue_asks_of_it() -> None:
    folders = sorted(path.parent.name for path in COMPONENTS.glob("*/component.py"))
    assert folders == ["cleanup_training", "distributed_train", "wait_for_training"]
    for folder in folders:
        found = yaml.safe_load((COMPONENTS / folder / "metadata.yaml").read_text())
        assert found["name"] == folder
        assert {"stability", "dependencies", "tags", "lastVerified"} <= set(found)
