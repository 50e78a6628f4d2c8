"""The example pipelines, each compiled and run on this machine."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
import yaml
from google.protobuf import json_format
from kfp import compiler
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.kfp.pipelines import run_pipeline

PIPELINES = Path(__file__).resolve().parents[3] / "pipelines"
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


@pytest.mark.parametrize("name", NAMES)
def test_every_task_that_uses_files_mounts_the_claim_on_a_cluster(name: str, pipelines: None, tmp_path: Path) -> None:
    compiler.Compiler().compile(getattr(module(name), name), str(tmp_path / "pipeline.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text())
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert parameters["home"]["defaultValue"] == "/shared"
    assert parameters["claim"]["parameterType"] == "STRING"
    mounts = {
        executor: [(each["mountPath"], *each["pvcNameParameter"].values()) for each in settings["pvcMount"]]
        for executor, settings in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].items()
    }
    assert {path for each in mounts.values() for path, _ in each} == {"/shared"}
    assert {claim for each in mounts.values() for _, claim in each} <= {"claim", "pipelinechannel--claim"}
    assert set(spec["deploymentSpec"]["executors"]) - set(mounts) <= {"exec-best"}, "best uses parameters only"


def test_the_commands_of_the_readme_submit_a_pipeline(tmp_path: Path) -> None:
    lines = (PIPELINES / "README.md").read_text(encoding="utf-8").splitlines()
    exported, compiling, submitting = (
        next(line[2:] for line in lines if line.startswith(f"$ {start}"))
        for start in ("export ", ".venvs/kfp/bin/kfp dsl compile ", ".venvs/kfp/bin/kfp --endpoint ")
    )
    with api_server() as (address, received):
        submitting = submitting.replace("http://localhost:8080", address)
        script = "\n".join(("set -e", exported, compiling, submitting)).replace(
            ".venvs/kfp/bin/kfp", str(Path(sys.executable).parent / "kfp")
        )
        script = script.replace("digits_retrain.yaml", str(tmp_path / "digits_retrain.yaml"))
        done = subprocess.run(["bash", "-c", script], cwd=PIPELINES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = next(body for path, body in received if path == "/apis/v2beta1/runs")
    assert run["runtime_config"]["parameters"] == {"claim": "digits"}
    executors = run["pipeline_spec"]["pipeline_spec"]["deploymentSpec"]["executors"]
    assert executors["exec-prepare"]["container"]["image"] == "registry.example/digits:1"
    mounts = run["pipeline_spec"]["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(mounts) == set(executors)


@contextmanager
def api_server() -> Iterator[tuple[str, list[tuple[str, dict]]]]:
    """Yields the address of a server with the replies that `kfp run create` needs, and the requests with a body."""
    received: list[tuple[str, dict]] = []
    reply = json.dumps(
        {"experiment_id": "e", "run_id": "r", "display_name": "digits", "created_at": "2026-11-26T00:00:00Z"}
    ).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, json.loads(body)))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


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
