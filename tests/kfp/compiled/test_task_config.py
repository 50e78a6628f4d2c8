"""A task's settings, in KFP's form, apply to the training pods.

The values are those of KFP's own test: kubeflow/pipelines, test_data/sdk_compiled_pipelines/valid/task_config.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from kfp import compiler, dsl, kubernetes
from kfp.dsl import TaskConfig

from stepset.rendering import make_request, render
from stepset.sources import read_sources
from stepset.spec.load import parse_job
from stepset_kfp import distributed_train
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
    """Returns the spec of the training pods of a job that does not have these settings itself."""
    mapping, notes = with_task_config({"name": "digits", "module": "train", "image": "i:1", "num_nodes": 2}, TASK)
    assert notes == ()
    job = parse_job(mapping)
    jobset = render(make_request(job, read_sources(job, Path())), "jobset")[-1]
    (group,) = jobset["spec"]["replicatedJobs"]
    spec: dict[str, Any] = group["template"]["spec"]["template"]["spec"]
    return spec


def test_affinity_node_selector_and_tolerations_apply_to_the_pods() -> None:
    spec = pod_spec()
    assert spec["affinity"] == AFFINITY
    assert spec["nodeSelector"] == {"disktype": "ssd"}
    assert spec["tolerations"] == [TOLERATION]


def test_resources_apply_to_each_pod() -> None:
    (container,) = pod_spec()["containers"]
    assert container["resources"]["limits"] == RESOURCES["limits"]
    assert container["resources"]["requests"] == {**RESOURCES["requests"], "nvidia.com/gpu": "1"}, (
        "an accelerator's request equals its limit, as in Kubernetes"
    )


def test_variables_and_volumes_apply_to_the_pods() -> None:
    spec = pod_spec()
    (container,) = spec["containers"]
    assert {"name": "ENV1", "value": "val1"} in container["env"]
    assert {"name": "ENV2", "value": "val2"} in container["env"]
    assert [mount for mount in container["volumeMounts"] if mount in MOUNTS] == MOUNTS
    assert [volume for volume in spec["volumes"] if volume in VOLUMES] == VOLUMES


def test_claims_lists_the_claims_that_the_pods_share() -> None:
    assert claims(TASK) == ["run-kfp-workspace", "kubernetes-task-config-pvc"]
    assert claims(None) == []


def test_all_settings_of_a_task_are_passed_to_the_component(tmp_path: Path) -> None:
    @dsl.pipeline(
        name="task-config",
        pipeline_config=dsl.PipelineConfig(
            workspace=dsl.WorkspaceConfig(
                size="5Mi",
                kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteMany"]}),
            )
        ),
    )
    def pipeline():
        task = distributed_train(module="train", image="i:1", checkpoint_dir=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/c")
        task.set_cpu_request("100m").set_memory_request("100Mi").set_cpu_limit("100m").set_memory_limit("100Mi")
        task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
        kubernetes.mount_pvc(task, pvc_name="kubernetes-task-config-pvc", mount_path="/data")
        kubernetes.add_node_selector(task, label_key="disktype", label_value="ssd")
        kubernetes.add_toleration(
            task, key="example-key", operator="Exists", effect="NoExecute", toleration_seconds=3600
        )
        kubernetes.add_node_affinity(task, match_expressions=[{"key": "disktype", "operator": "In", "values": ["ssd"]}])
        task.set_env_variable(name="ENV1", value="val1").set_env_variable(name="ENV2", value="val2")

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text())
    (component,) = spec["components"].values()
    passed = {each["field"]: each.get("applyToTask", False) for each in component["taskConfigPassthroughs"]}
    assert passed == {
        "RESOURCES": False,
        "ENV": True,
        "KUBERNETES_AFFINITY": False,
        "KUBERNETES_TOLERATIONS": False,
        "KUBERNETES_NODE_SELECTOR": False,
        "KUBERNETES_VOLUMES": True,
    }
    (settings,) = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    assert {"pvcMount", "nodeSelector", "tolerations", "nodeAffinity"} <= set(settings)
