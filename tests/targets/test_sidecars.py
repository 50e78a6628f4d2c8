"""Containers of `pod_template` beside the training container are native sidecars, so that a pod ends with its ranks."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.pod_changes import with_changed_pods
from stepset.errors import BadInputError
from stepset.rendering import render
from stepset.targets.pod_templates import templates_of
from stepset.targets.request import TARGET_NAMES
from tests.targets.making import of_kind, rendered, request

PROBE = {"httpGet": {"path": "/metrics", "port": 9100}}
EXPORTER: dict[str, Any] = {
    "name": "exporter",
    "image": "registry.example/exporter:1",
    "args": ["--port", "9100"],
    "env": [{"name": "LEVEL", "value": "info"}],
    "ports": [{"containerPort": 9100, "name": "metrics"}],
    "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
    "lifecycle": {"preStop": {"exec": {"command": ["flush"]}}},
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
}
FETCH: dict[str, Any] = {"name": "fetch", "image": "registry.example/fetch:1"}
BEFORE = [{"name": "prepare", "before": True, "command": ["fetch"]}, {"name": "monitor", "command": ["watch"]}]


def pod_specs(target: str, pod_template: dict[str, Any], **job: Any) -> dict[str, dict[str, Any]]:
    """Returns group -> the spec of its pods; the exporter's volume is added to `pod_template`."""
    volume = {"volumes": [{"name": "cache", "emptyDir": {}}]}
    whole = {"spec": {**pod_template["spec"], **volume}} if "spec" in pod_template else {**pod_template, **volume}
    objects = render(request(pod_template=whole, **job), target)
    workload = of_kind(objects, "TrainingRuntime") if target == "trainjob" else objects[-1]
    return {each["metadata"]["labels"]["stepset.dev/group"]: each["spec"] for each in templates_of(workload)}


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_only_the_training_container_keeps_a_pod_running(target: str) -> None:
    spec = pod_specs(target, pod_template={"containers": [EXPORTER]})["node"]
    assert names(spec["containers"]) == ["node"]
    assert names(spec["initContainers"]) == ["exporter"]


@pytest.mark.parametrize("target", [name for name in TARGET_NAMES if name != "trainjob"])
def test_a_sidecar_keeps_its_fields(target: str) -> None:
    spec = pod_specs(target, pod_template={"containers": [EXPORTER]})["node"]
    assert spec["initContainers"] == [{**EXPORTER, "restartPolicy": "Always"}]


def test_a_sidecars_ports_have_names_in_a_training_runtime() -> None:
    spec = pod_specs("trainjob", pod_template={"containers": [{**EXPORTER, "ports": [{"containerPort": 9100}]}]})
    (sidecar,) = spec["node"]["initContainers"]
    assert sidecar["ports"] == [{"name": "tcp-9100", "containerPort": 9100}]


@pytest.mark.parametrize("target", ["jobset", "trainjob"])
@pytest.mark.parametrize("framework", ["torch", "mpi"])
def test_pods_of_nodes_launcher_and_roles_have_them(target: str, framework: str) -> None:
    specs = pod_specs(target, framework=framework, roles=BEFORE, pod_template={"containers": [EXPORTER]})
    assert set(specs) == {"prepare", "monitor", "node"} | ({"launcher"} if framework == "mpi" else set())
    for spec in specs.values():
        assert (names(spec["containers"]), names(spec["initContainers"])) == (["node"], ["exporter"])


def test_sidecars_start_after_the_init_containers_in_the_order_of_the_list() -> None:
    proxy = {"name": "proxy", "image": "registry.example/proxy:1"}
    template = {"containers": [EXPORTER, proxy], "initContainers": [FETCH]}
    spec = pod_specs("jobset", pod_template=template)["node"]
    assert names(spec["initContainers"]) == ["fetch", "exporter", "proxy"]
    assert "restartPolicy" not in spec["initContainers"][0]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_training_container_may_be_anywhere_in_the_list(place: int) -> None:
    proxy = {"name": "proxy", "image": "registry.example/proxy:1"}
    listed = [EXPORTER, proxy]
    node = {"name": "node", "image": "registry.example/train:2", "command": ["train"]}
    listed.insert(place, node)
    spec = pod_specs("jobset", pod_template={"containers": [{"$patch": "replace"}, *listed]})["node"]
    assert spec["containers"] == [node]
    assert names(spec["initContainers"]) == ["exporter", "proxy"]


def test_a_sidecar_may_state_that_it_is_one() -> None:
    spec = pod_specs("jobset", pod_template={"containers": [{**EXPORTER, "restartPolicy": "Always"}]})["node"]
    assert spec["initContainers"] == [{**EXPORTER, "restartPolicy": "Always"}]


@pytest.mark.parametrize(
    "fields",
    [
        {"restartPolicy": "OnFailure"},
        {"restartPolicyRules": [{"action": "Restart"}]},
    ],
)
@pytest.mark.parametrize("target", TARGET_NAMES)
def test_another_restart_policy_is_rejected_with_the_remedy(target: str, fields: dict[str, Any]) -> None:
    with pytest.raises(BadInputError) as caught:
        pod_specs(target, pod_template={"spec": {"containers": [{**EXPORTER, **fields}]}})
    assert str(caught.value) == (
        f"pod_template.spec.containers.exporter.{next(iter(fields))}: a container beside 'node' is a sidecar, which is"
        " restarted until 'node' has ended; leave it out, or write restartPolicy: Never for a container that ends by"
        " itself"
    )


def test_sidecars_are_restricted_like_other_containers() -> None:
    spec = pod_specs("jobset", security="restricted", pod_template={"containers": [EXPORTER]})["node"]
    assert spec["initContainers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_a_container_that_an_installations_hook_adds_is_a_sidecar(target: str) -> None:
    def add(template: Manifest) -> Manifest:
        spec = template["spec"]
        return {**template, "spec": {**spec, "containers": [{"name": "logs", "image": "logs:1"}, *spec["containers"]]}}

    changed = [dict(with_changed_pods(each, add)) for each in rendered(target)]
    workload = of_kind(changed, "TrainingRuntime") if target == "trainjob" else changed[-1]
    for template in templates_of(workload):
        assert names(template["spec"]["containers"]) == ["node"]
        assert template["spec"]["initContainers"] == [{"name": "logs", "image": "logs:1", "restartPolicy": "Always"}]
