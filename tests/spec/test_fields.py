"""Every field of the job file: its values and its default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from stepset.spec import TrainingJob, load_job, parse_job
from stepset.spec.job import ENTRIES
from stepset.spec.options import KINDS
from tests.strategies import job_files
from tests.targets.cases import OWN_FIELDS

# One value, other than its default, for every field of every part of the job file: field -> (given, read back as).
PLACEMENT: dict[str, Any] = {
    "node_selector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
ROLE: dict[str, Any] = {
    "before": True,
    "replicas": 2,
    "image": "prepare:1",
    "command": ["fetch"],
    "args": ["all"],
    "env": {"A": "1"},
    "resources": {"cpu": "1", "gpus": "1", "shm": "1Gi"},
    "scheduling": PLACEMENT,
}
FULL: dict[str, Any] = {
    "name": "digits",
    "framework": {
        "kind": "torch",
        "elastic": {
            "min_nodes": 1,
            "max_nodes": 4,
            "max_restarts": 5,
            "rdzv_id": "digits-1",
            "rdzv_conf": {"read_timeout": "120"},
        },
        "env_layer": "launcher",
    },
    "num_nodes": 2,
    "procs_per_node": 4,
    "image": "registry.example/train:1",
    "script": "train.py",
    "args": ["--epochs", "3"],
    "code": "src",
    "requirements": ["rich>=13,<15", "einops"],
    "env": {
        "LR": "0.1",
        "HF_TOKEN": {"secret": "hub", "key": "token"},
        "HOST_IP": {"field": "status.hostIP"},
        "PET_NNODES": {"value": "4", "override": True},
        "PET_NODE_RANK": {"field": "metadata.name", "override": True},
        "PET_MASTER_ADDR": {"secret": "a", "key": "b", "override": True},
    },
    "resources_per_node": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}, "shm": "8Gi"},
    "storage": [{"path": "/data", "claim": "datasets", "sub_path": "digits", "read_only": True}],
    "checkpoint_dir": "/ckpt/digits",
    "roles": [{**ROLE, "name": "fetch"}, {**ROLE, "name": "prepare", "after": ["fetch"]}],
    "restart": {"max_restarts": 3, "user_errors": "fail", "lost_node": "release", "lost_node_after": "10m"},
    "hang": {"after": "10m", "first": "1h", "action": "restart"},
    "deadline": "12h",
    "termination_grace_period": "2m",
    "ttl": "1h",
    "scheduling": {
        "queue_name": "team-a",
        "priority_class": "high",
        "gang": "coscheduling",
        "min_member": 2,
        **PLACEMENT,
        "launcher": PLACEMENT,
    },
    "network": {
        "port": 29501,
        "subdomain": "ring",
        "cluster_domain": "k8s.example",
        "peer_timeout": "5m",
        "policy": True,
    },
    "service_account": "trainer",
    "security": "restricted",
    "labels": {"team": "a"},
    "annotations": {"note": "nightly"},
    "pod_template": {"spec": {"hostIPC": True}},
    "agent": True,
}
for _path, _field in OWN_FIELDS.items():
    *_above, _name = _path.split(".")
    _section = FULL
    for _each in _above:
        _section = _section.setdefault(_each, {})
    _section[_name] = _field.value


def _unset(part: Any, path: str = "") -> list[str]:
    """Yields the fields of a loaded model that have their defaults."""
    if isinstance(part, list):
        return [field for item in part for field in _unset(item, f"{path}[]")]
    if not hasattr(type(part), "model_fields"):
        return []
    fields = type(part).model_fields
    missing = [f"{path}.{name}" for name in fields if name not in part.model_fields_set]
    return missing + [field for name in fields for field in _unset(getattr(part, name), f"{path}.{name}")]


def test_the_full_job_sets_every_field() -> None:
    # `launcher` must stay torchrun beside `elastic`, and the other entries exclude `script`.
    assert _unset(parse_job(FULL)) == [
        ".module",
        ".command",
        ".function",
        ".framework.launch",
        ".framework.launcher",
        ".roles[].after",
    ]


def test_the_full_job_is_read_back_as_it_was_written() -> None:
    assert parse_job(FULL).to_dict() == FULL


def test_an_omitted_field_has_the_documented_default() -> None:
    job = parse_job({"script": "train.py"})
    assert job.to_dict() == {"name": "train", "framework": "torch", "script": "train.py"}
    assert (job.num_nodes, job.procs_per_node, job.agent) == (1, "auto", "auto")
    assert (job.network.port, job.network.subdomain, job.network.cluster_domain) == (29500, None, "cluster.local")
    assert job.network.peer_timeout == 600
    assert (job.restart.max_restarts, job.restart.user_errors, job.restart.lost_node) == (0, "restart", "report")
    assert (job.deadline, job.ttl, job.image, job.service_account) == (None, None, None, None)
    assert (job.env, job.roles, job.storage, job.pod_template) == ({}, [], [], {})


def test_every_kind_of_framework_can_be_given_by_its_name_or_as_a_mapping() -> None:
    for kind in KINDS:
        entry = {} if kind == "torchtune" else {"script": "train.py"}
        by_name = parse_job({"framework": kind, **entry})
        assert by_name == parse_job({"framework": {"kind": kind}, **entry})
        assert by_name.framework.kind == kind


@pytest.mark.parametrize(
    "framework",
    [
        {"kind": "torch", "launcher": "none", "env_layer": "worker"},
        {"kind": "torchtune", "model": "llama3_2/1B"},
        {"kind": "torchtune", "recipe": "full_finetune_distributed", "config": "mine.yaml"},
        {"kind": "deepspeed", "launcher": "deepspeed"},
        {"kind": "mpi", "implementation": "mpich", "run_launcher_as_node": True, "ssh_port": 22, "launch": "command"},
        {"kind": "mpi", "ssh_auth_mount_path": "/root/.ssh"},
        {"kind": "mlx", "backend": "mpi"},
    ],
)
def test_a_frameworks_options_are_read_back_as_they_were_written(framework: dict[str, Any]) -> None:
    assert parse_job({"framework": framework, "script": "train.py"}).to_dict()["framework"] == framework


@pytest.mark.parametrize("off", ["off", "OFF", False, "false", "False"])
def test_hang_detection_can_be_turned_off_in_each_form_of_yaml(off: Any) -> None:
    job = parse_job({"script": "train.py", "hang": off})
    assert (job.hang, job.hang_times, job.to_dict()["hang"]) == ("off", None, "off")


def test_hang_detection_is_on_by_default_and_each_time_has_its_own_default(tmp_path: Path) -> None:
    default, late = parse_job({"script": "a.py"}), parse_job({"script": "a.py", "hang": {"first": "2h"}})
    assert default.hang_times is not None
    assert (default.hang_times.after, default.hang_times.first) == (300, 1800)
    assert late.hang_times is not None
    assert (late.hang_times.after, late.hang_times.first) == (300, 7200)
    assert late.to_dict()["hang"] == {"first": "2h"}
    (tmp_path / "job.yaml").write_text("script: a.py\nhang: off\n", encoding="utf-8")
    assert load_job(tmp_path / "job.yaml").hang == "off"


@pytest.mark.parametrize(
    ("entry", "value"), [("script", "a.py"), ("module", "pkg.a"), ("command", ["a"]), ("function", "pass")]
)
def test_each_entry_point_is_sufficient(entry: str, value: Any) -> None:
    assert getattr(parse_job({entry: value}), entry) == value
    assert entry in ENTRIES


def test_a_torchtune_model_is_sufficient() -> None:
    job = parse_job({"framework": {"kind": "torchtune", "model": "llama3_2/1B"}})
    assert all(getattr(job, entry) is None for entry in ENTRIES)


@pytest.mark.parametrize(
    ("given", "meant"), [("auto", "auto"), ("cpu", "cpu"), ("gpu", "gpu"), (1, 1), ("8", 8), ("08", 8)]
)
def test_processes_per_node_are_a_number_or_a_keyword(given: Any, meant: Any) -> None:
    assert parse_job({"script": "a.py", "procs_per_node": given}).procs_per_node == meant


@pytest.mark.parametrize(
    ("given", "meant"), [("auto", "auto"), (True, True), ("true", True), ("False", False), (False, False)]
)
def test_agent_is_true_false_or_auto(given: Any, meant: Any) -> None:
    assert parse_job({"script": "a.py", "agent": given}).agent is meant


def test_bare_numbers_among_words_are_text() -> None:
    job = parse_job(
        {"command": ["sleep", 3], "args": [1, 0.5, "x"], "roles": [{"name": "m", "command": ["sleep", 3], "args": [2]}]}
    )
    assert (job.command, job.args) == (["sleep", "3"], ["1", "0.5", "x"])
    assert (job.roles[0].command, job.roles[0].args) == (["sleep", "3"], ["2"])


def test_the_strategies_draw_every_field() -> None:
    """Other property tests cover whole jobs only if every field is drawn."""
    drawn: set[str] = set()

    @settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(job_files())
    def draw(job: dict[str, Any]) -> None:
        drawn.update(job)

    draw()
    assert drawn == set(TrainingJob.model_fields)
