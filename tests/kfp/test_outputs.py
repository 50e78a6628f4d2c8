"""Results that KFP's JSON cannot represent do not fail the step; outputs that cannot be written are clear errors."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kfp import dsl

from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from stepset.spec import parse_job
from stepset_kfp import distributed_train
from stepset_kfp.outputs.artifacts import write_model
from stepset_kfp.step.train import train
from stepset_kfp.training.distributed_train.component import distributed_train as component
from tests.kfp.pipelines import one_step, run_pipeline

ODD = """\
import json, os, sys
sys.stdout.buffer.write(b"raw \\xff bytes\\n")
sys.stdout.flush()
metrics = {"loss": float("nan"), "accuracy": 0.5, "half \\ud800": 1.0}
print(json.dumps({"stepset": {"step": 1, "metrics": metrics}}), flush=True)
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({"loss": float("nan"), "best": [float("-inf")], "word": "\\ud800", "large": 10**400}, file)
"""


@pytest.mark.local
def test_numbers_and_characters_that_kfp_cannot_read_become_text(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(ODD)
    ran = run_pipeline(
        one_step(lambda: distributed_train(base_dir=tmp_path, framework="plain", num_nodes=1, script="train.py")),
        tmp_path / "out",
    )
    assert ran.error is None, "KFP could read all of it"
    result = json.loads(ran.output("distributed-train", "result").read_text())
    assert (result["loss"], result["best"], result["word"]) == ("NaN", ["-Infinity"], "\\ud800")
    artifacts = json.loads(ran.output("distributed-train", "executor_output.json").read_text())["artifacts"]
    assert artifacts["metrics"]["artifacts"][0]["metadata"] == {"accuracy": 0.5, "half \\ud800": 1.0}
    assert "metrics: omitted because not finite: loss, large" in ran.log


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limits the files that this process writes, to simulate a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_model_that_is_too_large_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    saved = tmp_path / "model.pt"
    saved.write_bytes(bytes(300_000))
    status = RunStatus("run", "job", "local", Phase.SUCCEEDED, result={"model": str(saved)})
    model = dsl.Model(name="model", uri=str(tmp_path / "out" / "model"))
    with (
        files_of_at_most(100_000),
        pytest.raises(InfrastructureError, match=r"model.pt cannot be copied to .*too large"),
    ):
        write_model(model, status, parse_job({"module": "train", "framework": "plain"}))


@pytest.mark.local
def test_outputs_that_cannot_be_written_are_reported_in_one_line(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    given = {name: spec.default for name, spec in component.component_spec.inputs.items()}
    below = str(tmp_path / "file" / "run")
    with pytest.raises(SystemExit) as ended:
        train({**given, "framework": "plain", "function": "pass", "backend": "local", "run": below, "result": below})
    assert ended.value.code == 3
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"stepset: {tmp_path / 'file'}") and "to its output directories" in last
