"""Errors about arguments of KubernetesPodOperator show the task's own values, converted and merged."""

from __future__ import annotations

import re
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.secret import Secret
from airflow.sdk import DAG, task
from kubernetes.client import models as k8s

from stepset_airflow import DistributedTrainOperator
from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS, KpoParameter

pytestmark = pytest.mark.airflow

RENAMED = [row for row in KPO_PARAMETERS.values() if row.path]
POD_AND_VOLUMES: dict[str, Any] = {
    "cmds": ["torchrun", "--standalone", "--nproc-per-node=8", "--nnodes", "1", "/app/train.py", "--nnodes=3"],
    "arguments": ["--epochs", "{{ params.epochs }}"],
    "env_vars": [
        k8s.V1EnvVar(name="LR", value="0.2"),
        k8s.V1EnvVar(
            name="HOST_IP",
            value_from=k8s.V1EnvVarSource(field_ref=k8s.V1ObjectFieldSelector(field_path="status.hostIP")),
        ),
    ],
    "secrets": [Secret("env", "HUB", "hub", "token")],
    "container_resources": k8s.V1ResourceRequirements(
        requests={"cpu": "3", "nvidia.com/gpu": "8"}, limits={"cpu": "3", "nvidia.com/gpu": "8"}
    ),
    "volumes": [
        k8s.V1Volume(
            name="ckpt",
            persistent_volume_claim=k8s.V1PersistentVolumeClaimVolumeSource(claim_name="own", read_only=True),
        ),
        k8s.V1Volume(name="scratch", empty_dir=k8s.V1EmptyDirVolumeSource()),
        k8s.V1Volume(name="shm", empty_dir=k8s.V1EmptyDirVolumeSource(medium="Memory")),
    ],
    "volume_mounts": [
        k8s.V1VolumeMount(name="ckpt", mount_path="/ckpt", sub_path="a"),
        k8s.V1VolumeMount(name="scratch", mount_path="/scratch"),
        k8s.V1VolumeMount(name="shm", mount_path="/dev/shm"),
    ],
    "image_pull_secrets": [k8s.V1LocalObjectReference(name="own-registry")],
    "image_pull_policy": "Always",
    "node_selector": {"pool": "own"},
    "tolerations": [k8s.V1Toleration(key="team", operator="Exists")],
    "startup_timeout_seconds": 600,
    "skip_on_exit_code": [4, 5],
    "is_delete_operator_pod": False,
}


def problems(**arguments: Any) -> list[str]:
    """Returns the lines of the error of a task, without the place."""
    place = "DAG 'nightly', task 'train': "
    with DAG("nightly", schedule=None), pytest.raises(TypeError) as raised:
        DistributedTrainOperator(task_id="train", **arguments)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(place) for line in lines)
    return [line.removeprefix(place) for line in lines]


def suggested(lines: list[str]) -> dict[str, Any]:
    """Returns the arguments that the lines suggest; each line has no note."""
    found: dict[str, Any] = {}
    for line in lines:
        _, _, arguments = line.partition("; write ")
        assert arguments, line
        found |= eval(f"dict({re.sub(r': the maximum number of seconds .*', '', arguments)})")
    return found


def leaf(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = value[part] if isinstance(value, dict) else value[0][part]
    return value


@pytest.mark.parametrize("row", RENAMED, ids=[row.name for row in RENAMED])
def test_the_value_of_an_example_becomes_the_example(row: KpoParameter) -> None:
    value = leaf(eval(f"dict({row.example})"), row.path)
    (line,) = problems(script="train.py", **{row.name: value})
    assert line.startswith(f"{row.name}: a parameter of {row.operator}; write {row.example}")


def test_every_value_of_a_pod_is_converted_and_each_of_our_parameters_is_suggested_once() -> None:
    lines = problems(image="train:1", **POD_AND_VOLUMES)
    expected = {
        "command": ["torchrun", "/app/train.py", "--nnodes=3"],
        "procs_per_node": 8,
        "args": ["--epochs", "{{ params.epochs }}"],
        "env": {"LR": "0.2", "HOST_IP": {"field": "status.hostIP"}, "HUB": {"secret": "hub", "key": "token"}},
        "resources_per_node": {"cpu": "3", "nvidia.com/gpu": "8"},
        "storage": [{"path": "/ckpt", "claim": "own", "sub_path": "a", "read_only": True}],
        "pod_template": {
            "containers": [
                {
                    "name": "node",
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "imagePullPolicy": "Always",
                }
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "imagePullSecrets": [{"name": "own-registry"}],
        },
        "scheduling": {
            "node_selector": {"pool": "own"},
            "tolerations": [{"key": "team", "operator": "Exists"}],
        },
        "startup_timeout": 600,
        "exit_code_policy": {4: "skip", 5: "skip"},
        "on_finish_action": "keep",
    }
    assert suggested(lines) == expected
    assert all(sum(f" {name}=" in line for line in lines) == 1 for name in expected)
    with DAG("nightly", schedule=None):
        DistributedTrainOperator(task_id="train", image="train:1", **expected)


def test_a_suggestion_contains_what_the_task_has_already() -> None:
    lines = problems(script="train.py", scheduling={"priority_class": "high"}, node_selector={"pool": "own"})
    assert suggested(lines) == {"scheduling": {"priority_class": "high", "node_selector": {"pool": "own"}}}


def test_all_problems_are_in_one_error() -> None:
    """The values of the other arguments, and rules that apply to the converted ones."""
    lines = problems(
        script="train.py", env_vars={"LR": 1}, num_nodes=0, on_finish_action="delete_pod", num_node=3, get_logs=True
    )
    assert [line.partition(":")[0] for line in lines] == [
        "num_node",
        "env_vars",
        "get_logs",
        "on_finish_action",
        "num_nodes",
    ]


def test_a_program_that_the_error_suggests_is_not_missing() -> None:
    assert problems(cmds=["bash", "-cx"], arguments=["torchrun train.py"]) == [
        'cmds: a parameter of KubernetesPodOperator; write command=["bash", "-cx"], agent=True',
        'arguments: a parameter of KubernetesPodOperator; write args=["torchrun train.py"]',
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"arguments": ["torchrun", "--nproc_per_node=2", "--nnodes=4", "train.py"]},
            ['arguments: {}; write command=["torchrun", "train.py"], procs_per_node=2, num_nodes=4'],
        ),
        (
            {"cmds": ["torchrun"], "arguments": ["--nproc-per-node", "8", "--nnodes", "4", "train.py", "--lr", "1"]},
            ['cmds, arguments: {}; write command=["torchrun", "train.py", "--lr", "1"], procs_per_node=8, num_nodes=4'],
        ),
        (
            {"cmds": ["python", "-m", "torch.distributed.run", "--nnodes=2", "train.py"], "arguments": ["--nnodes=7"]},
            [
                'cmds: {}; write command=["python", "-m", "torch.distributed.run", "train.py"], num_nodes=2',
                'arguments: {}; write args=["--nnodes=7"]',
            ],
        ),
        (
            {"cmds": ["bash", "-c"], "arguments": ["torchrun --nproc-per-node=2 --nnodes=4 train.py"]},
            [
                'cmds: {}; write command=["bash", "-c"], procs_per_node=2, num_nodes=4, agent=True',
                'arguments: {}; write args=["torchrun train.py"]',
            ],
        ),
        (  # the example of docs/airflow-kpo.md
            {
                "cmds": ["bash", "-cx"],
                "arguments": ["pip install /app && torchrun --standalone --nproc-per-node=8 /app/train.py --epochs 3"],
            },
            [
                'cmds: {}; write command=["bash", "-cx"], procs_per_node=8, agent=True',
                'arguments: {}; write args=["pip install /app && torchrun /app/train.py --epochs 3"]',
            ],
        ),
        (
            {
                "cmds": ["accelerate", "launch", "--multi_gpu", "--num_processes=8", "--num_machines=4"],
                "arguments": ["train.py"],
            },
            [
                'cmds: {}; write command=["accelerate", "launch", "--multi_gpu", "--num_processes=8",'
                ' "--num_machines=4"], procs_per_node=2, num_nodes=4',
                'arguments: {}; write args=["train.py"]',
            ],
        ),
    ],
    ids=["arguments", "both", "module", "shell", "documented", "accelerate"],
)
def test_the_options_of_a_launcher_become_num_nodes_and_procs_per_node(
    given: dict[str, Any], expected: list[str]
) -> None:
    kinds = ("a parameter of KubernetesPodOperator", "parameters of KubernetesPodOperator")
    assert problems(image="train:1", **given) == [
        line.format(kinds["," in line.partition(":")[0]]) for line in expected
    ]


def test_a_number_of_nodes_in_a_shell_script_does_not_contradict_that_of_the_task() -> None:
    script = "torchrun --nnodes 1 --nproc_per_node '8' --rdzv-id $ID train.py --nnodes 1"
    lines = problems(cmds=["bash", "-cx"], arguments=[script], num_nodes=4)
    assert suggested(lines) == {
        "command": ["bash", "-cx"],
        "args": ["torchrun train.py --nnodes 1"],
        "procs_per_node": 8,
        "agent": True,
    }


def test_secrets_become_variables_sources_of_variables_and_volumes() -> None:
    items = [k8s.V1KeyToPath(key="key", path="id")]
    secrets = [
        Secret("env", "HUB", "hub", "token"),
        Secret("env", None, "all"),
        Secret("volume", "/creds", "creds.v1"),
        Secret("volume", "/key", "keys", items=items),
    ]
    found = suggested(problems(script="train.py", secrets=secrets))
    assert found == {
        "env": {"HUB": {"secret": "hub", "key": "token"}},
        "pod_template": {
            "containers": [
                {
                    "name": "node",
                    "envFrom": [{"secretRef": {"name": "all"}}],
                    "volumeMounts": [
                        {"name": "secret-2", "mountPath": "/creds", "readOnly": True},
                        {"name": "secret-3", "mountPath": "/key", "readOnly": True},
                    ],
                }
            ],
            "volumes": [
                {"name": "secret-2", "secret": {"secretName": "creds.v1"}},
                {"name": "secret-3", "secret": {"secretName": "keys", "items": [{"key": "key", "path": "id"}]}},
            ],
        },
    }
    with DAG("nightly", schedule=None):
        DistributedTrainOperator(task_id="train", script="train.py", **found)


def test_a_number_of_nodes_that_the_task_has_is_kept() -> None:
    lines = problems(num_nodes=8, cmds=["torchrun", "--nnodes=2", "train.py"])
    assert lines == ['cmds: a parameter of KubernetesPodOperator; write command=["torchrun", "train.py"]']


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [
        ("startup_timeout_seconds", "soon", "startup_timeout=1800"),
        ("tolerations", "team", '"key": "gpu"'),
        ("secrets", ["hub"], '{"secret": "hub", "key": "token"}'),
        ("volumes", [k8s.V1Volume(name="a", empty_dir=k8s.V1EmptyDirVolumeSource())], '"claim": "datasets"'),
        ("arguments", ["x" * 2000], '["--epochs", "3"]'),
        ("full_pod_spec", k8s.V1Pod(spec=k8s.V1PodSpec(containers=[])), '"nodeName": "gpu-0"'),
    ],
)
def test_an_example_stands_for_a_value_that_cannot_be_converted(name: str, value: object, example: str) -> None:
    (line,) = problems(script="train.py", **{name: value})
    assert "; write for example " in line
    assert example in line


@pytest.mark.parametrize(
    "arguments",
    [
        {"env_vars": None},
        {"affinity": k8s.V1Affinity(), "tolerations": [], "secrets": []},
        {
            "volumes": [k8s.V1Volume(name="shm", empty_dir=k8s.V1EmptyDirVolumeSource(medium="Memory"))],
            "volume_mounts": [k8s.V1VolumeMount(name="shm", mount_path="/dev/shm")],
        },
    ],
)
def test_a_value_without_effect_is_to_be_removed(arguments: dict[str, Any]) -> None:
    lines = problems(script="train.py", **arguments)
    assert [line.partition(":")[0] for line in lines] == list(arguments)
    assert all(line.endswith("needs no equivalent; remove it") for line in lines)


def test_the_size_of_shared_memory_is_a_resource() -> None:
    memory = k8s.V1EmptyDirVolumeSource(medium="Memory", size_limit="8Gi")
    (line,) = problems(
        script="train.py",
        volumes=[k8s.V1Volume(name="shm", empty_dir=memory)],
        volume_mounts=[k8s.V1VolumeMount(name="shm", mount_path="/dev/shm")],
    )
    assert line.endswith('parameters of KubernetesPodOperator; write resources_per_node={"shm": "8Gi"}')


def test_a_value_that_a_suggestion_replaces_is_checked_too() -> None:
    lines = problems(script="train.py", is_delete_operator_pod=False, on_finish_action="delete_succeeded_pod")
    assert lines[0].endswith('write on_finish_action="keep"')
    assert "on_finish_action: 'delete_succeeded_pod' is not known; did you mean 'delete_succeeded'?" in lines[1]


def test_the_result_of_another_task_has_an_example() -> None:
    @task
    def prepare() -> list[str]:
        return []

    with DAG("nightly", schedule=None), pytest.raises(TypeError, match="write for example args="):
        DistributedTrainOperator(task_id="train", script="train.py", arguments=["--data", prepare()])


def test_values_that_airflow_masks_are_not_shown() -> None:
    (line,) = problems(script="train.py", env_vars={"LR": "0.2", "HUB_PASSWORD": "hidden-value"})
    assert line.endswith('write env={"LR": "0.2", "HUB_PASSWORD": "***"}')


def test_a_script_that_python_runs_is_started_by_torchrun() -> None:
    assert problems(cmds=["python", "/app/train.py"]) == [
        'cmds: a parameter of KubernetesPodOperator; write command=["torchrun", "/app/train.py"]: num_nodes and'
        " procs_per_node determine how many processes torchrun starts"
    ]
    assert problems(framework="plain", cmds=["python", "/app/train.py"]) == [
        'cmds: a parameter of KubernetesPodOperator; write command=["python", "/app/train.py"]'
    ]


def test_a_command_that_runs_a_script_is_removed_if_script_is_given() -> None:
    assert problems(script="train.py", cmds=["python3", "/app/train.py"]) == [
        "cmds: a parameter of KubernetesPodOperator; this value needs no equivalent; remove it"
    ]


def test_a_flag_without_its_value_causes_no_other_error() -> None:
    assert problems(cmds=["torchrun", "train.py"], arguments=["--nnodes"])
    assert problems(cmds=["torchrun", "--nnodes"])[0].startswith("cmds: a parameter of KubernetesPodOperator")


@pytest.mark.parametrize("number", ["\N{SUPERSCRIPT TWO}", "9" * 5000])
@pytest.mark.parametrize("option", ["--nnodes", "--nproc-per-node"])
def test_a_number_that_python_cannot_convert_causes_no_other_error(option: str, number: str) -> None:
    (line,) = problems(cmds=["torchrun", f"{option}={number}", "train.py"])
    assert line.startswith("cmds: a parameter of KubernetesPodOperator; write ")
