"""A component's inputs and a task's settings become a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct
from kfp.dsl import TaskConfig
from kfp.dsl.pipeline_channel import PipelineParameterChannel

from stepset.defaults import JOB_FIELDS
from stepset.errors import BadInputError
from stepset.spec.job import TrainingJob
from stepset.spec.load import parse_job, read_job_file
from stepset_kfp.authoring.distributed_train import prepare, with_job
from stepset_kfp.authoring.encoding import Encoder
from stepset_kfp.encoding import whole, with_decoded_inputs
from stepset_kfp.job_inputs import job_mapping
from stepset_kfp.packing import from_text, script_archive, unpack
from stepset_kfp.task_config import with_task_config
from stepset_kfp.training.distributed_train.component import distributed_train as component


def test_every_field_of_the_job_file_is_an_input() -> None:
    assert set(JOB_FIELDS) == set(TrainingJob.model_fields)
    assert set(JOB_FIELDS) <= set(component.component_spec.inputs or {})


def test_empty_inputs_are_ignored() -> None:
    given = {"name": "", "num_nodes": -1, "args": [], "env": {}, "module": "train"}
    assert job_mapping(given) == {"module": "train"}


def test_zero_nodes_are_an_error() -> None:
    with pytest.raises(BadInputError, match="num_nodes: 0 is too small"):
        parse_job(job_mapping({"num_nodes": 0, "module": "train"}))


def test_inputs_replace_the_fields_of_the_job() -> None:
    given = {"job": {"num_nodes": 4.0, "module": "train", "restart": {"max_restarts": 2.0}}, "num_nodes": 2}
    assert job_mapping(with_decoded_inputs(given, {})) == {
        "num_nodes": 2,
        "module": "train",
        "restart": {"max_restarts": 2},
    }


def test_fields_with_several_forms_are_read_from_text() -> None:
    given = {"framework": '{"kind": "mpi", "implementation": "intel"}', "procs_per_node": "2", "module": "train"}
    job = parse_job(job_mapping(given))
    assert (job.framework.kind, job.procs_per_node) == ("mpi", 2)


@pytest.mark.parametrize(
    ("given", "after"), [("off", None), ("false", None), ('{"after": "1m"}', 60), ("{after: 2m}", 120)]
)
def test_the_times_of_a_hang_are_read_from_text(given: str, after: int | None) -> None:
    times = parse_job(job_mapping({"hang": given, "module": "train"})).hang_times
    assert (times and times.after) == after


def test_the_action_after_a_hang_is_read_from_text() -> None:
    times = parse_job(job_mapping({"hang": "{action: restart}", "module": "train"})).hang_times
    assert times and times.action == "restart"


def test_queue_name_and_shm_are_merged_into_their_mappings() -> None:
    given = {"queue_name": "team-a", "scheduling": {"gang": "kueue"}, "shm": "1Gi", "resources_per_node": {"cpu": 2.0}}
    job = job_mapping(with_decoded_inputs(given, {}))
    assert job["scheduling"] == {"gang": "kueue", "queue_name": "team-a"}
    assert job["resources_per_node"] == {"shm": "1Gi", "cpu": 2}


def test_queue_name_and_shm_replace_the_values_of_the_job_file() -> None:
    job = {"scheduling": {"queue_name": "team-a"}, "resources_per_node": {"shm": "1Gi", "cpu": 2}}
    mapping = job_mapping({"job": job, "queue_name": "team-b", "shm": "16Gi"})
    assert mapping == {"scheduling": {"queue_name": "team-b"}, "resources_per_node": {"shm": "16Gi", "cpu": 2}}


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (
            {"queue_name": "team-b", "scheduling": {"queue_name": "team-a"}},
            "queue_name: 'team-b' contradicts scheduling.queue_name, which is 'team-a'; give one of them",
        ),
        (
            {"shm": "16Gi", "resources_per_node": {"shm": "1Gi", "cpu": 2}},
            "shm: '16Gi' contradicts resources_per_node.shm, which is '1Gi'; give one of them",
        ),
    ],
)
def test_queue_name_and_shm_must_not_contradict_another_input(inputs: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInputError) as raised:
        job_mapping(inputs)
    assert str(raised.value) == problem
    field = next(name for name, value in inputs.items() if isinstance(value, dict))
    name = next(name for name in inputs if name != field)
    assert job_mapping({**inputs, name: inputs[field][name]})[field] == inputs[field]


def test_whole_floats_become_integers_at_any_depth() -> None:
    assert whole({"a": [3.0, 1.5], "b": {"c": 2.0}}) == {"a": [3, 1.5], "b": {"c": 2}}


@pytest.mark.parametrize("number", ["9007199254740993", "1.0", "12.0", "3", "0.5", "-9007199254740993", "1e+22"])
@pytest.mark.parametrize("runtime", [False, True], ids=["constants", "with a parameter"])
def test_numbers_are_the_text_that_the_author_wrote(tmp_path: Path, number: str, runtime: bool) -> None:
    """KFP passes mappings as protobuf's Struct, whose numbers are doubles."""
    value = json.loads(number)
    (tmp_path / "job.yaml").write_text(f"env: {{C: {number}}}")
    more = {"num_nodes": PipelineParameterChannel(name="n", channel_type="Integer")} if runtime else {}
    given, _ = prepare(
        *with_job({"job": "job.yaml", "module": "train", "env": {"A": value}, "args": [value, "x"], **more}, tmp_path),
        Encoder(),
    )
    passed = with_decoded_inputs(as_kfp_passes(given), {})
    assert parse_job(job_mapping({**passed, "num_nodes": 1})).to_dict()["env"] == {"A": number}
    assert parse_job(job_mapping({**passed, "num_nodes": 1})).args == [number, "x"]
    assert parse_job(job_mapping({"job": passed["job"], "module": "train"})).to_dict()["env"] == {"C": number}


@pytest.mark.parametrize("put", [lambda fields: fields, lambda fields: {"job": fields}], ids=["inputs", "job"])
def test_parameters_in_args_and_env_of_a_role_become_text(put: Any) -> None:
    many = PipelineParameterChannel(name="many", channel_type="List")
    some = PipelineParameterChannel(name="some", channel_type="Dict")
    rate = PipelineParameterChannel(name="rate", channel_type="Float")
    first = {"name": "a", "command": ["a"], "args": many, "env": some}
    second = {"name": "b", "command": ["b"], "args": [rate], "env": {"A": rate}}
    passed = as_kfp_passes(Encoder().inputs(put({"module": "train", "roles": [first, second]})))
    values = {"value_many": ["x", 1.0, True, [2.0]], "value_some": {"A": True, "B": 1.0}, "value_rate": 2.0}
    one, two = parse_job(job_mapping(with_decoded_inputs(passed, values))).to_dict()["roles"]
    assert (one["args"], one["env"]) == (["x", "1", "true", "[2]"], {"A": "true", "B": "1"})
    assert (two["args"], two["env"]) == (["2.0"], {"A": "2.0"})


def test_several_variables_with_integers_are_the_text_that_the_author_wrote(tmp_path: Path) -> None:
    """If `env` has several variables, KFP passes it as a list of pairs, which keeps their order."""
    env = {"N": 3, "STEPS": 1000000, "RATE": 0.5, "ON": True, "WHOLE": 2.0, "OWN": {"value": 7, "override": True}}
    inputs = {"module": "train", "env": env, "roles": [{"name": "ps", "command": ["ps"], "env": env}]}
    given, _ = prepare(inputs, tmp_path, Encoder())
    job = parse_job(job_mapping(with_decoded_inputs(as_kfp_passes(given), {}))).to_dict()
    texts = {"N": "3", "STEPS": "1000000", "RATE": "0.5", "ON": "true", "WHOLE": "2.0"}
    assert job["env"] == job["roles"][0]["env"] == {**texts, "OWN": {"value": "7", "override": True}}


def as_kfp_passes(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the mappings among the arguments as protobuf's Struct passes them."""
    return {
        name: MessageToDict(ParseDict(value, Struct())) if isinstance(value, dict) else value
        for name, value in arguments.items()
    }


def test_a_value_of_a_job_file_that_yaml_changes_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("module: train\nenv: {A: 1.10}\nnetwork: {policy: yes}")
    with pytest.raises(BadInputError, match=r'env\.A: 1\.10 is read as 1\.1; write "1\.10"'):
        prepare(*with_job({"job": "job.yaml"}, tmp_path), Encoder())
    nodes = PipelineParameterChannel(name="n", channel_type="Integer")
    with pytest.raises(BadInputError, match=r'env\.A: 1\.10 is read as 1\.1; write "1\.10"'):
        prepare(*with_job({"job": "job.yaml", "num_nodes": nodes}, tmp_path), Encoder())
    later = Encoder().inputs({"job": dict(read_job_file(tmp_path / "job.yaml"))})
    passed = with_decoded_inputs(as_kfp_passes(later), {})["job"]
    with pytest.raises(BadInputError, match=r'env\.A: 1\.10 is read as 1\.1; write "1\.10"'):
        parse_job(job_mapping({"job": passed, "num_nodes": 2}))
    assert parse_job(job_mapping({"job": {**passed, "env": {}}, "num_nodes": 2})).network.policy is True


def test_an_argument_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r'args\.0: true is not text; write "true"'):
        prepare({"module": "train", "args": [True]}, tmp_path, Encoder())


def test_packed_code_depends_only_on_its_content(tmp_path: Path) -> None:
    archive = script_archive("train.py", b"print(1)\n")
    assert script_archive("train.py", b"print(1)\n") == archive, "compiling again results in the same pipeline"
    (tmp_path / "to").mkdir()
    unpack(archive, tmp_path / "to")
    assert (tmp_path / "to/train.py").read_text() == "print(1)\n"


def test_text_that_is_not_packed_code_is_refused(tmp_path: Path) -> None:
    for text in ("no base64!", "aGVsbG8="):
        with pytest.raises(BadInputError, match="cannot be unpacked"):
            unpack(from_text(text), tmp_path)


def task(**fields: object) -> TaskConfig:
    return TaskConfig(**fields)


JOB = {"module": "train"}


def test_a_task_without_settings_changes_nothing() -> None:
    assert with_task_config(JOB, None) == (JOB, ())
    assert with_task_config(JOB, task()) == (JOB, ())


def test_resources_of_the_task_apply_to_every_training_pod() -> None:
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": "8"}, "requests": {"cpu": "1"}}
    job, _ = with_task_config({**JOB, "resources_per_node": {"shm": "8Gi"}}, task(resources=resources))
    read = parse_job(job).resources_per_node
    assert read.requests == {"cpu": "1", "nvidia.com/gpu": "8"} and read.shm == "8Gi"
    own, _ = with_task_config({**JOB, "resources_per_node": {"cpu": 4}}, task(resources=resources))
    assert own["resources_per_node"] == {"cpu": 4}, "inputs take precedence"


def test_any_number_of_accelerators_and_any_other_resource_can_be_an_input() -> None:
    resources = {
        "requests": {"nvidia.com/gpu": 3.0, "rdma/hca": 1.0},
        "limits": {"nvidia.com/gpu": 3.0, "rdma/hca": 1.0},
    }
    job = parse_job(job_mapping(with_decoded_inputs({"module": "train", "resources_per_node": resources}, {})))
    assert job.resources_per_node.limits == {"nvidia.com/gpu": "3", "rdma/hca": "1"}


def test_variables_of_the_task_apply_to_the_ranks_except_fields_of_the_steps_pod() -> None:
    env = [
        {"name": "LR", "value": "0.1"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    job, notes = with_task_config({**JOB, "env": {"LR": "0.2"}}, task(env=env))
    assert job["env"] == {"LR": "0.2", "TOKEN": {"secret": "hub", "key": "token"}}
    assert job["pod_template"]["spec"]["containers"] == [{"name": "node", "env": [env[2]]}]
    assert len(notes) == 1 and "env IP" in notes[0]
    parse_job(job)


def test_nodes_and_volumes_of_the_task_apply_to_the_training_pods() -> None:
    settings = task(
        node_selector={"zone": "a", "gpu": "h100"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        volumes=[{"name": "workspace", "persistentVolumeClaim": {"claimName": "run-workspace"}}],
        volume_mounts=[{"name": "workspace", "mountPath": "/kfp-workspace"}],
    )
    own = {**JOB, "scheduling": {"node_selector": {"zone": "b"}, "tolerations": [{"key": "own"}]}}
    job, _ = with_task_config(own, settings)
    read = parse_job(job).scheduling
    assert read.node_selector == {"zone": "b", "gpu": "h100"}
    assert [each["key"] for each in read.tolerations] == ["gpu", "own"]
    assert read.affinity == {"nodeAffinity": {}}
    spec = job["pod_template"]["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "run-workspace"}
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == "/kfp-workspace"
