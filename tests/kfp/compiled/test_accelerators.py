"""The accelerators in the settings of a task are checked when a pipeline is compiled."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kfp import compiler, dsl
from kfp.dsl.structures import ResourceSpec

from stepset.errors import BadInputError
from stepset_kfp import distribute, distributed_train

JOB = {"framework": "torch", "num_nodes": 2, "module": "train", "image": "registry.example/a:1"}
PLACE = "task distributed-train (digits): "


@dsl.component(base_image="registry.example/own:1")
def own(data: str) -> str:
    return data


def compiled(
    tmp_path: Path,
    settings: Callable[[dsl.PipelineTask, object, object], object],
    create: Callable[[], dsl.PipelineTask] = lambda: distributed_train(**JOB, name="digits"),
) -> dict:
    """Compiles a pipeline, and returns the accelerators of its training."""

    @dsl.pipeline(name="accelerators")
    def pipeline(count: int = 8, kind: str = "nvidia.com/gpu") -> None:
        settings(create(), count, kind)

    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text(encoding="utf-8")))
    (executor,) = spec["deploymentSpec"]["executors"].values()
    found = executor["container"].get("resources", {}).get("accelerator", {})
    return {name: found.get(name) for name in ("resourceType", "resourceCount")} if found else {}


@pytest.mark.parametrize("create", [lambda: distributed_train(**JOB, name="digits"), lambda: distribute(own)(data="a")])
def test_a_limit_without_a_type_is_an_error(tmp_path: Path, create: Callable[[], dsl.PipelineTask]) -> None:
    with pytest.raises(BadInputError, match=r"set_accelerator_limit\(8\) has no effect without a type; call set_accel"):
        compiled(tmp_path, lambda task, *_: task.set_accelerator_limit(8), create)


def test_the_name_of_a_gpu_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as raised:
        compiled(tmp_path, lambda task, *_: task.set_accelerator_type("A100").set_accelerator_limit(8))
    assert str(raised.value).startswith(
        f"{PLACE}set_accelerator_type: 'A100' is not the name of a Kubernetes resource; call set_accelerator_type("
    )


def test_valid_settings_reach_the_pipeline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gpus = {"resourceType": "nvidia.com/gpu", "resourceCount": "8"}
    kind = "nvidia.com/gpu"
    assert compiled(tmp_path, lambda task, *_: task.set_accelerator_limit(8).set_accelerator_type(kind)) == gpus
    assert compiled(tmp_path, lambda task, *_: task.set_accelerator_type(kind).set_accelerator_limit(8)) == gpus
    assert compiled(tmp_path, lambda task, *_: task.set_cpu_limit("2")) == {}
    unknown = compiled(tmp_path, lambda task, count, kind: task.set_accelerator_type(kind).set_accelerator_limit(count))
    assert "inputs.parameters" in unknown["resourceType"] and "inputs.parameters" in unknown["resourceCount"]
    assert not [text for text in caplog.messages if "procs_per_node" in text]


def test_the_compiler_finds_only_the_fields_of_kfp_in_the_resources(tmp_path: Path) -> None:
    """The compiler adds an entry of `__dict__` that contains a run-time value to the inputs of the task."""
    found: list[dict[str, object]] = []
    compiled(tmp_path, lambda task, *_: found.append(vars(task.set_cpu_limit("2").container_spec.resources)))
    assert set(found[0]) == set(vars(ResourceSpec()))


@pytest.mark.parametrize(
    ("inputs", "reported"),
    [
        ({"procs_per_node": 1}, True),
        ({"job": {"procs_per_node": 1}}, True),
        ({"procs_per_node": 8}, False),
        ({"procs_per_node": "auto"}, False),
        ({"procs_per_node": 1, "resources_per_node": {"gpus": 1}}, False),
        ({"procs_per_node": 1, "backend": "local"}, False),
    ],
)
def test_more_accelerators_than_processes_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, inputs: dict, reported: bool
) -> None:
    compiled(
        tmp_path,
        lambda task, *_: task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(8),
        lambda: distributed_train(**{**JOB, "name": "digits", **inputs}),
    )
    found = [text for text in caplog.messages if "procs_per_node is 1, but each node has 8 accelerators" in text]
    assert len(found) == int(reported)
    assert all(text.startswith(PLACE) for text in found)
