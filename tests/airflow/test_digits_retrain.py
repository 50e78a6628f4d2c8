"""Airflow runs the example DAG dags/digits_retrain.py twice: accuracy, promotion, warm start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.harness import EXAMPLES, DagRun, asset_event_extras, asset_state, run_to_end

pytestmark = [pytest.mark.airflow, pytest.mark.local, pytest.mark.frameworks]

TASKS = ("prepare", "train", "evaluate", "promote")


@pytest.fixture(scope="module")
def runs(airflow_db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DagRun]]:
    """Two runs of the DAG, one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSET_HOME", str(tmp_path_factory.mktemp("stepset")))
        patch.setenv("AIRFLOW_VAR_DIGITS_HOME", str(tmp_path_factory.mktemp("digits")))
        yield [run_to_end(EXAMPLES / "digits_retrain.py", "retrain") for _ in range(2)]


def test_both_runs_succeed(runs: list[DagRun]) -> None:
    assert [run.state for run in runs] == ["success", "success"]
    assert [runs[0].task_state(task) for task in TASKS] == ["success"] * 4


def test_four_ranks_train_a_model_with_an_accuracy_above_95_percent(runs: list[DagRun]) -> None:
    for run in runs:
        trained, evaluated = run.xcom("train"), run.xcom("evaluate")
        assert trained["world_size"] == 4
        assert evaluated["candidate"]["accuracy"] > 0.95
        assert evaluated["candidate"]["accuracy"] == trained["accuracy"]  # another process, the same checkpoint


def test_the_task_log_shows_every_rank_and_the_progress(runs: list[DagRun]) -> None:
    for rank in range(4):
        assert f"[rank {rank}] 360 of 1437 digits are mine, start: random weights" in runs[0].lines
    assert any(line.startswith("progress: 100 %, step 8, loss=") for line in runs[0].lines)


def test_the_first_model_is_promoted_and_is_in_the_asset_s_event(runs: list[DagRun]) -> None:
    model = Path(runs[0].xcom("promote"))
    assert model.is_file()
    first = asset_event_extras("digits_model")[0]
    assert first["checkpoint"] == str(model)
    assert first["accuracy"] == runs[0].xcom("evaluate")["candidate"]["accuracy"]


def test_the_second_run_starts_from_the_promoted_model(runs: list[DagRun]) -> None:
    model = runs[0].xcom("promote")
    assert runs[1].xcom("prepare")["last_good"] == model
    trained = runs[1].xcom("train")
    assert (trained["start"], trained["started_from"]) == ("warm start", model)
    assert trained["before"]["accuracy"] == runs[0].xcom("train")["accuracy"]
    assert trained["history"]["loss"][0] < runs[0].xcom("train")["history"]["loss"][0] / 2


def test_only_a_better_model_is_promoted(runs: list[DagRun]) -> None:
    scores = runs[1].xcom("evaluate")
    new, old = scores["candidate"], scores["last_good"]
    assert old == runs[0].xcom("evaluate")["candidate"]
    better = (new["accuracy"], -new["loss"]) > (old["accuracy"], -old["loss"])
    assert runs[1].task_state("promote") == ("success" if better else "skipped")
    promoted = [run.xcom("promote") for run in runs if run.task_state("promote") == "success"]
    assert len(asset_event_extras("digits_model")) == len(promoted)
    assert asset_state("digits_model", "last_good_checkpoint") == promoted[-1]
