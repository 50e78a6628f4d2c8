"""The example pipelines, each compiled and run on this machine."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from google.protobuf import json_format
from kfp import compiler
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.kfp.pipelines import run_pipeline

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
NAMES = sorted(path.stem for path in PIPELINES.glob("*.py"))


@pytest.fixture
def pipelines() -> Iterator[None]:
    """Makes the examples importable."""
    sys.path.insert(0, str(PIPELINES))
    yield
    sys.path.remove(str(PIPELINES))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("name", NAMES)
def test_it_compiles_to_a_specification_that_the_server_accepts(name: str, pipelines: None, tmp_path: Path) -> None:
    compiler.Compiler().compile(getattr(module(name), name), str(tmp_path / "pipeline.yaml"))
    spec, *platform = yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text())
    # As in backend/src/apiserver/template/v2_template.go, which refuses unknown fields.
    json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    for each in platform:
        json_format.ParseDict(each, pipeline_spec_pb2.PlatformSpec())
    longest = max(len(word) for word in _words(spec))
    assert longest < 128 * 1024, "the maximum length of an argument on Linux"


def _words(spec: dict) -> Iterator[str]:
    for executor in spec["deploymentSpec"]["executors"].values():
        yield from executor["container"].get("command", ())
        yield from executor["container"].get("args", ())


@pytest.mark.local
def test_retraining_starts_from_the_model_promoted_last_and_promotes_only_better_ones(
    pipelines: None, tmp_path: Path, home: Path
) -> None:
    retrain = module("digits_retrain").digits_retrain
    first = run_pipeline(retrain, tmp_path / "first", home=str(tmp_path / "home"), epochs=2)
    assert first.error is None and "start: random weights" in first.log
    assert "better" in first.log and "promoted: " in first.log

    good = tmp_path / "home/models/last_good.pt"
    overfit(tmp_path / "home/digits.npz", good)
    before = good.read_bytes()
    second = run_pipeline(retrain, tmp_path / "second", home=str(tmp_path / "home"), epochs=1)
    assert second.error is None and "start: warm start" in second.log
    assert "not better" in second.log and "promoted: " not in second.log
    assert good.read_bytes() == before


def overfit(data: Path, model_file: Path) -> None:
    """Writes a model trained on the digits with which models are compared, so that no other model is better."""
    import torch  # here, because collection and the other tests do not need it

    sys.path.insert(0, str(PIPELINES.parent / "dags" / "digits"))
    try:
        from model import new_model, read_digits
    finally:
        sys.path.pop(0)
    pixels, labels = read_digits(data, "test")
    torch.manual_seed(0)
    model = new_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.001
    torch.save({"model": model.state_dict()}, model_file)


@pytest.mark.local
def test_a_sweep_trains_for_each_rate_and_collects_the_results(pipelines: None, tmp_path: Path, home: Path) -> None:
    ran = run_pipeline(module("digits_sweep").digits_sweep, tmp_path / "out", home=str(tmp_path / "home"), epochs=1)
    assert ran.error is None
    chosen = json.loads(ran.output("best", "executor_output.json").read_text())["parameterValues"]["Output"]
    assert "best of 2" in ran.log
    assert chosen["checkpoint"] == str(tmp_path / "home/sweep/0.05/last.pt"), "the higher rate learns more in one epoch"


@pytest.mark.local
def test_a_distributed_component_sums_over_every_rank(pipelines: None, tmp_path: Path, home: Path) -> None:
    ran = run_pipeline(
        module("distribute_component").distribute_component, tmp_path / "out", home=str(tmp_path / "home")
    )
    assert ran.error is None
    output = json.loads(ran.output("mean-image", "executor_output.json").read_text())
    assert output["parameterValues"]["Output"] == pytest.approx(0.305383, abs=1e-5)
    assert output["artifacts"]["metrics"]["artifacts"][0]["metadata"] == {"world_size": 4}
