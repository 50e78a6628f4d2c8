"""Airflow runs the example DAGs other than digits_retrain to their end."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import EXAMPLES
from tests.code_blocks import ROOT, blocks

pytestmark = [pytest.mark.airflow, pytest.mark.local, pytest.mark.frameworks]


@pytest.fixture(autouse=True)
def _digits_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_DIGITS_HOME", str(tmp_path / "digits"))


def test_a_sweep_trains_once_for_each_learning_rate_and_picks_the_best(run_dag: RunDag) -> None:
    run = run_dag(EXAMPLES / "digits_sweep.py", "sweep", {"rates": [0.005, 0.05]})
    assert run.state == "success", run.explained()
    trained = [run.xcom(f"train[{index}]", map_indexes=index) for index in range(2)]
    picked = run.xcom("pick")
    assert picked["accuracy"] == max(result["accuracy"] for result in trained)
    assert picked["accuracy"] > 0.9
    assert len({result["checkpoint"] for result in trained}) == 2


def test_a_pipeline_reports_the_accuracy_of_its_training(run_dag: RunDag) -> None:
    run = run_dag(EXAMPLES / "digits_pipeline.py", "pipeline")
    assert run.state == "success", run.explained()
    assert run.xcom("fit")["world_size"] == 2
    assert run.xcom("report") == f"fits {run.xcom('fit')['accuracy']:.0%} of its digits"
    assert run.xcom("fit")["accuracy"] > 0.8


def test_the_function_of_the_guide_runs_as_a_task(
    run_dag: RunDag, write_dag: WriteDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_dag("...").parent
    for block in blocks(ROOT / "docs/guides/functions.md"):
        if block.file:
            (folder / block.file).write_text(block.text.replace("/models/", f"{tmp_path}/"), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    run = run_dag(folder / "fit_dag.py")
    assert run.state == "success", run.explained()
    assert run.xcom("fit")["model"] == f"{tmp_path}/fit.pt"
    assert (tmp_path / "fit.pt").is_file()


def test_the_operator_runs_an_mpi_program(run_dag: RunDag) -> None:
    if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs Open MPI (make system) and mpi4py")
    run = run_dag(EXAMPLES / "digits_mpi.py", "mpi")
    assert run.state == "success", run.explained()
    assert (run.xcom("train")["world_size"], run.xcom("train")["rank_sum"]) == (4, 10)


@pytest.mark.smoke
def test_the_operator_runs_a_deepspeed_program(run_dag: RunDag) -> None:
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("needs deepspeed")
    run = run_dag(EXAMPLES / "digits_deepspeed.py", "deepspeed")
    assert run.state == "success", run.explained()
    result = run.xcom("train")
    assert (result["world_size"], result["rank_sum"], result["parameters_equal"]) == (2, 3, True)
    assert result["zero_stage"] >= 1


def test_the_example_with_a_loop_defines_no_dag_for_an_airflow_without_loops() -> None:
    import airflow.sdk

    spec = importlib.util.spec_from_file_location("digits_until_good", EXAMPLES / "digits_until_good.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (module.until_good is None) is not hasattr(airflow.sdk, "LoopDecision")
