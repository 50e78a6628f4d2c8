"""Outputs that a pipeline step cannot store, and values that KFP cannot read, do not fail a training that succeeded."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from stepset.watch.present.sentences import NOT_FINITE
from tests.reported.test_results_that_json_cannot_express import NAN_RESULT, NAN_SCRIPT

pytest.importorskip("kfp")
from kfp import dsl

from stepset_kfp.step.train import train, write_output
from stepset_kfp.step.wait import wait
from stepset_kfp.training.distributed_train import component

pytestmark = [
    pytest.mark.kfp,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kfp"),
    pytest.mark.filterwarnings("ignore::FutureWarning:kfp"),
]


def inputs_of(directory: Path, outputs: Path) -> dict[str, Any]:
    """Returns the inputs of a step that trains on this machine and writes its outputs to the directory `outputs`."""
    parameters = signature(component.distributed_train.python_func).parameters
    given = {name: None if each.default is each.empty else each.default for name, each in parameters.items()}
    artifacts = {"model": dsl.Model, "metrics": dsl.Metrics, "report": dsl.HTML}
    given |= {name: kind(name=name, uri=str(outputs / name)) for name, kind in artifacts.items()}
    given |= {name: str(outputs / name) for name in ("result", "run")}
    return given | {"backend": "local", "framework": "plain", "num_nodes": 1, "function": NAN_SCRIPT}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_nan_in_the_result_is_null_with_a_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KFP_POD_NAME", "KUBERNETES_SERVICE_HOST"):  # as in the pod of a step
        monkeypatch.setenv(name, "set")
    train(inputs_of(tmp_path, tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "result").read_text()) == NAN_RESULT
    assert NOT_FINITE in "".join(capfd.readouterr())


def test_null_is_left_out_for_the_local_runner_which_cannot_read_it(tmp_path: Path) -> None:
    train(inputs_of(tmp_path, tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "result").read_text()) == {"best": ["", 1.5], "deep": {"x": [{}]}}


def test_outputs_that_cannot_be_written_do_not_fail_the_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out"
    file.write_text("no directory can be created here")
    train(inputs_of(tmp_path, file))
    printed = "".join(capfd.readouterr())
    for name in ("run", "report", "result"):
        assert f"stepset: {name}: not written: " in printed


def test_a_step_that_waits_for_a_run_succeeds_without_its_outputs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import stepset

    (tmp_path / "train.py").write_text(NAN_SCRIPT)
    run = stepset.run(tmp_path / "train.py", framework="plain").name
    report = dsl.HTML(name="report", uri="/dev/null/report")
    wait({"backend": "local", "namespace": "", "run": run, "timeout": 60, "report": report, "result": "/dev/null/x"})
    printed = "".join(capfd.readouterr())
    assert "stepset: report: not written: " in printed and "stepset: result: not written: " in printed


def test_a_full_disk_is_a_message(capfd: pytest.CaptureFixture[str]) -> None:
    write_output("result", "/dev/full", "{}")
    assert "stepset: result: not written: No space left on device" in "".join(capfd.readouterr())
