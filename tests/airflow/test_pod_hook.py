"""Airflow's `pod_mutation_hook`, applied to the pod templates of a run."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.kubernetes.submit.pod_changes import with_changed_pods
from stepset.targets.pod_templates import templates_of
from stepset.targets.request import TARGET_NAMES
from stepset_airflow.run.clusters import mutate_pod
from tests.airflow.policy import pods_changed_by
from tests.targets.making import rendered

pytestmark = pytest.mark.airflow

ROLES = [{"name": "prepare", "before": True, "image": "data:1", "command": ["fetch"]}]


def tolerate(pod: Any) -> None:
    from kubernetes.client import V1Toleration

    pod.metadata.annotations = {**(pod.metadata.annotations or {}), "site.example/team": "ml"}
    pod.spec.tolerations = [*(pod.spec.tolerations or []), V1Toleration(key="gpu", operator="Exists")]


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_hook_changes_the_pods_of_every_group_and_nothing_else(target: str) -> None:
    roles = ROLES if target in ("jobset", "trainjob") else []
    before = rendered(target, framework="torch", num_nodes=2, roles=roles)
    with pods_changed_by(tolerate):
        after = [with_changed_pods(each, mutate_pod) for each in before]
    changed = 0
    for old, new in zip(before, after, strict=True):
        if old == new:
            continue
        for was, template in zip(templates_of(old), templates_of(new), strict=True):
            changed += 1
            assert template["metadata"]["annotations"].pop("site.example/team") == "ml"
            assert template["spec"]["tolerations"].pop() == {"key": "gpu", "operator": "Exists"}
            template["metadata"]["annotations"] = was["metadata"].get("annotations", {})
            template["spec"]["tolerations"] = was["spec"].get("tolerations", [])
            was["metadata"].setdefault("annotations", {})
            was["spec"].setdefault("tolerations", [])
        assert new == old
    assert changed == 1 + len(roles)


def test_a_template_that_the_hook_does_not_change_stays_as_it_was_rendered() -> None:
    template = templates_of(rendered(pod_template={"spec": {"fieldOfAnotherKubernetes": 1}})[-1])[0]
    assert mutate_pod(template) is template


def test_an_exception_of_the_hook_is_raised() -> None:
    def refuse(pod: Any) -> None:
        raise ValueError("not on this cluster")

    template = templates_of(rendered()[-1])[0]
    with pods_changed_by(refuse), pytest.raises(ValueError, match="not on this cluster"):
        mutate_pod(template)
