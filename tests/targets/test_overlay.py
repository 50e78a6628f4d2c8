"""`pod_template` is merged over a pod as Kubernetes merges."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.targets.pods.strategic_merge import merge
from tests.targets.making import container, pod, rendered

BASE: dict[str, Any] = {
    "containers": [
        {
            "name": "node",
            "image": "a",
            "command": ["x", "y"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 29500}],
            "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        }
    ],
    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
    "nodeSelector": {"a": "1"},
    "tolerations": [{"key": "gpu"}],
}


def _node(**patch: Any) -> dict[str, Any]:
    merged: dict[str, Any] = merge(BASE, {"containers": [{"name": "node", **patch}]})["containers"][0]
    return merged


def test_mappings_merge_key_by_key() -> None:
    assert merge(BASE, {"nodeSelector": {"b": "2"}})["nodeSelector"] == {"a": "1", "b": "2"}
    assert _node(resources={"limits": {"cpu": "2"}})["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}}


def test_lists_without_a_merge_key_are_replaced() -> None:
    assert merge(BASE, {"tolerations": [{"key": "other"}]})["tolerations"] == [{"key": "other"}]
    assert _node(command=["z"])["command"] == ["z"]


@pytest.mark.parametrize(
    ("field", "entry", "merged"),
    [
        ("env", {"name": "A", "value": "9"}, [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}]),
        ("ports", {"containerPort": 29500, "name": "rdzv"}, [{"containerPort": 29500, "name": "rdzv"}]),
        ("ports", {"containerPort": 8080}, [{"containerPort": 29500}, {"containerPort": 8080}]),
        ("volumeMounts", {"mountPath": "/dev/shm", "name": "big"}, [{"name": "big", "mountPath": "/dev/shm"}]),
    ],
)
def test_a_containers_lists_merge_by_their_own_keys(field: str, entry: dict[str, Any], merged: list[Any]) -> None:
    assert _node(**{field: [entry]})[field] == merged


def test_entries_keep_their_position_and_new_entries_are_last() -> None:
    merged = merge(BASE, {"containers": [{"name": "sidecar", "image": "s"}, {"name": "node", "image": "b"}]})
    assert [(each["name"], each["image"]) for each in merged["containers"]] == [("node", "b"), ("sidecar", "s")]


def test_a_volume_has_one_source() -> None:
    merged = merge(BASE, {"volumes": [{"name": "dshm", "hostPath": {"path": "/dev/shm"}}]})
    assert merged["volumes"] == [{"name": "dshm", "hostPath": {"path": "/dev/shm"}}]


def test_a_volume_of_the_same_source_is_merged() -> None:
    merged = merge(BASE, {"volumes": [{"name": "dshm", "emptyDir": {"sizeLimit": "1Gi"}}]})
    assert merged["volumes"] == [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]


@pytest.mark.parametrize("before", [{"value": "1"}, {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])
@pytest.mark.parametrize("source", [{"value": ""}, {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])
def test_a_variable_has_one_source(before: dict[str, Any], source: dict[str, Any]) -> None:
    assert merge({"env": [{"name": "A", **before}]}, {"env": [{"name": "A", **source}]})["env"] == [
        {"name": "A", **source}
    ]
    assert merge({"env": [{"name": "A", **before}]}, {"env": [{"name": "A"}]})["env"] == [{"name": "A", **before}]


def test_null_and_patch_delete_remove_fields() -> None:
    assert "nodeSelector" not in merge(BASE, {"nodeSelector": None})
    assert "nodeSelector" not in merge(BASE, {"nodeSelector": {"$patch": "delete"}})
    assert _node(env=[{"name": "A", "$patch": "delete"}])["env"] == [{"name": "B", "value": "2"}]
    assert _node(env=[{"name": "never", "$patch": "delete"}])["env"] == BASE["containers"][0]["env"]


def test_a_list_of_other_values_than_mappings_is_replaced() -> None:
    assert merge({"securityContext": {}}, {"securityContext": {"ports": [5]}}) == {"securityContext": {"ports": [5]}}


def test_patch_replace_removes_the_existing_content() -> None:
    replaced = [{"$patch": "replace"}, {"name": "C", "value": "3"}]
    assert _node(env=replaced)["env"] == [{"name": "C", "value": "3"}]
    assert _node(env=[*replaced, {"name": "A", "$patch": "delete"}])["env"] == [{"name": "C", "value": "3"}]
    assert merge(BASE, {"nodeSelector": {"$patch": "replace", "z": "1"}})["nodeSelector"] == {"z": "1"}


def test_merging_does_not_change_its_inputs() -> None:
    import copy

    base, patch = copy.deepcopy(BASE), {"containers": [{"name": "node", "env": [{"name": "A", "value": "9"}]}]}
    merge(base, patch)
    assert base == BASE


class TestInAJob:
    @pytest.mark.parametrize("whole", [True, False])
    def test_the_template_may_be_whole_or_its_spec_alone(self, whole: bool) -> None:
        spec = {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}]}
        objects = rendered(pod_template={"spec": spec} if whole else spec)
        assert pod(objects)["spec"]["hostAliases"] == spec["hostAliases"]

    def test_its_metadata_is_merged_too(self) -> None:
        metadata = pod(rendered(pod_template={"metadata": {"annotations": {"a": "b"}}}))["metadata"]
        assert metadata["annotations"] == {"sidecar.istio.io/inject": "false", "a": "b"}

    def test_the_template_can_enable_the_sidecar_again(self) -> None:
        labels = {"sidecar.istio.io/inject": None}
        assert (
            "sidecar.istio.io/inject"
            not in pod(rendered(pod_template={"metadata": {"labels": labels}}))["metadata"]["labels"]
        )

    def test_it_reaches_the_pods_of_every_group(self) -> None:
        objects = rendered(
            framework="mpi",
            procs_per_node=1,
            roles=[{"name": "prepare", "before": True, "command": ["x"]}],
            pod_template={"containers": [{"name": "node", "imagePullPolicy": "Always"}]},
        )
        for group in ("prepare", "node", "launcher"):
            assert container(objects, group)["imagePullPolicy"] == "Always"

    def test_the_users_shared_memory_replaces_stepsets(self) -> None:
        spec = {
            "containers": [{"name": "node", "volumeMounts": [{"name": "big", "mountPath": "/dev/shm"}]}],
            "volumes": [{"name": "big", "emptyDir": {"medium": "Memory", "sizeLimit": "1Ti"}}],
        }
        mounts = container(rendered(pod_template=spec))["volumeMounts"]
        assert [m["name"] for m in mounts if m["mountPath"] == "/dev/shm"] == ["big"]
