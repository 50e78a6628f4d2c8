"""A task's settings as KFP hands them over, on the training pods.

The values are those that KFP's own test expects of its backend: kubeflow/pipelines,
test_data/sdk_compiled_pipelines/valid/task_config.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kfp.dsl import TaskConfig

from stepset.rendering import make_request
from stepset.sources import read_sources
from stepset.spec.load import parse_job
from stepset.targets.render import render
from stepset_kfp.task_config import claims, with_task_config

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disktype", "operator": "In", "values": ["ssd"]}]}]
        }
    }
}
TOLERATION = {"effect": "NoExecute", "key": "example-key", "operator": "Exists", "tolerationSeconds": 3600}
RESOURCES = {
    "limits": {"cpu": "100m", "memory": "100Mi", "nvidia.com/gpu": "1"},
    "requests": {"cpu": "100m", "memory": "100Mi"},
}
MOUNTS = [
    {"mountPath": "/kfp-workspace", "name": "kfp-workspace"},
    {"mountPath": "/data", "name": "kubernetes-task-config-pvc"},
]
VOLUMES = [
    {"name": "kfp-workspace", "persistentVolumeClaim": {"claimName": "run-kfp-workspace"}},
    {"name": "kubernetes-task-config-pvc", "persistentVolumeClaim": {"claimName": "kubernetes-task-config-pvc"}},
]
TASK = TaskConfig(
    affinity=AFFINITY,
    env=[{"name": "ENV1", "value": "val1"}, {"name": "ENV2", "value": "val2"}],
    node_selector={"disktype": "ssd"},
    resources=RESOURCES,
    tolerations=[TOLERATION],
    volume_mounts=MOUNTS,
    volumes=VOLUMES,
)


def pod_spec() -> dict[str, Any]:
    """The spec of the training pods of a job that says nothing of all that."""
    mapping, notes = with_task_config({"name": "digits", "module": "train", "image": "i:1", "num_nodes": 2}, TASK)
    assert notes == ()
    job = parse_job(mapping)
    jobset = render(make_request(job, read_sources(job, Path())), "jobset")[-1]
    (group,) = jobset["spec"]["replicatedJobs"]
    spec: dict[str, Any] = group["template"]["spec"]["template"]["spec"]
    return spec


def test_where_the_pods_may_run() -> None:
    spec = pod_spec()
    assert spec["affinity"] == AFFINITY
    assert spec["nodeSelector"] == {"disktype": "ssd"}
    assert spec["tolerations"] == [TOLERATION]


def test_what_each_pod_asks_for() -> None:
    (container,) = pod_spec()["containers"]
    assert container["resources"]["limits"] == RESOURCES["limits"]
    assert container["resources"]["requests"] == {**RESOURCES["requests"], "nvidia.com/gpu": "1"}, (
        "an accelerator's request is its limit, as Kubernetes would make it"
    )


def test_what_the_ranks_find_in_their_environment_and_on_their_disks() -> None:
    spec = pod_spec()
    (container,) = spec["containers"]
    assert {"name": "ENV1", "value": "val1"} in container["env"]
    assert {"name": "ENV2", "value": "val2"} in container["env"]
    assert [mount for mount in container["volumeMounts"] if mount in MOUNTS] == MOUNTS
    assert [volume for volume in spec["volumes"] if volume in VOLUMES] == VOLUMES


def test_claims_that_the_pods_share_are_known() -> None:
    assert claims(TASK) == ["run-kfp-workspace", "kubernetes-task-config-pvc"]
    assert claims(None) == []
