"""The asset events of a training (`outlets`), and trainings that start from their checkpoints (`warm_start`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import EXAMPLES, DagRun, asset_event_extras, asset_state

pytestmark = [pytest.mark.airflow, pytest.mark.local]

WRITES_RESULT = """
    import json, os, sys
    result = {"started_with": os.environ.get("STEPSET_WARM_START"), "loss": 0.5}
    print(json.dumps({"stepset": {"step": 3, "metrics": {"accuracy": 0.75}}}), flush=True)
    open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps(result))
"""


def train(asset: str, more: str = "", **parameters: object) -> str:
    """A task with an asset as its outlet, whose result contains the checkpoint that it started with."""
    given = {"task_id": "train", "framework": "plain", "backend": "local", "script": "train.py", **parameters}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"DistributedTrainOperator({words}, outlets=[Asset({asset!r})], {more})"


def warm(asset: str) -> str:
    return f"warm_start=Asset({asset!r})"


def started_with(run: DagRun) -> object:
    assert run.state == "success", run.explained()
    return run.xcom("train")["started_with"]


def test_the_event_contains_result_metrics_and_checkpoint_and_the_asset_s_state_the_checkpoint(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    run = run_dag(write_dag(train("complete", checkpoint_dir="/models/{{ dag.dag_id }}"), WRITES_RESULT))
    assert started_with(run) is None
    (extra,) = asset_event_extras("complete")
    dag_id = run.tasks["train"].dag_id
    assert extra.pop("run").startswith("train-")
    assert extra == {
        "started_with": None,
        "loss": 0.5,
        "metrics": {"accuracy": 0.75},
        "checkpoint": f"/models/{dag_id}",
    }
    assert asset_state("complete", "checkpoint") == f"/models/{dag_id}"


def test_a_result_that_is_not_a_mapping_is_in_the_event_as_result(write_dag: WriteDag, run_dag: RunDag) -> None:
    run = run_dag(write_dag(train("number"), "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('0.5')"))
    assert run.state == "success", run.explained()
    (extra,) = asset_event_extras("number")
    assert extra["result"] == 0.5
    assert asset_state("number", "checkpoint") is None


def test_a_warm_start_without_a_checkpoint_is_a_cold_start(write_dag: WriteDag, run_dag: RunDag) -> None:
    assert started_with(run_dag(write_dag(train("none", warm("none")), WRITES_RESULT))) is None


def test_each_run_starts_with_the_checkpoint_of_the_previous_one(write_dag: WriteDag, run_dag: RunDag) -> None:
    path = write_dag(train("chain", warm("chain"), checkpoint_dir="/models/{{ run_id }}"), WRITES_RESULT)
    runs = [run_dag(path) for _ in range(3)]
    left = [f"/models/{run.tasks['train'].run_id}" for run in runs]
    assert [started_with(run) for run in runs] == [None, *left[:2]]


def test_the_log_of_a_retry_starts_with_the_reason_of_the_try(write_dag: WriteDag, run_dag: RunDag) -> None:
    fails_once = (
        WRITES_RESULT
        + """
    sys.exit(os.environ["STEPSET_ATTEMPT"] == "0" and result["started_with"] is not None)
    """
    )
    path = write_dag(
        train("retried", warm("retried"), checkpoint_dir="/models/a", retries=1, retry_delay=0), fails_once
    )
    assert run_dag(path).state == "success"
    run = run_dag(path)
    assert run.tries("train") == 2, run.explained()
    ours = [line for line in run.lines if line.startswith(("this try", "warm start", "run train-"))]
    retry = ours.index(next(line for line in ours if line.startswith("this try")))
    assert ours[0] == ours[retry + 1] == "warm start from checkpoint /models/a of asset retried"
    assert "failed after" in ours[retry - 1]
    assert ours[retry + 2].startswith("run train-")


def test_an_event_without_a_checkpoint_is_skipped(write_dag: WriteDag, run_dag: RunDag) -> None:
    updates = """
        @task(outlets=[Asset("by_hand")])
        def promote(outlet_events=None):
            outlet_events[Asset("by_hand")].extra = {"checkpoint": "/models/promoted"}

        @task(outlets=[Asset("by_hand")])
        def touch(): ...

    """
    text = f"promote() >> touch() >> {train('other', warm('by_hand'))}"
    assert started_with(run_dag(write_dag(f"{updates}\n        {text}", WRITES_RESULT))) == "/models/promoted"
    assert asset_event_extras("by_hand")[-1] == {}


def test_the_checkpoint_is_still_known_after_its_event_was_deleted(write_dag: WriteDag, run_dag: RunDag) -> None:
    path = write_dag(train("cleaned", warm("cleaned"), checkpoint_dir="/models/kept"), WRITES_RESULT)
    assert started_with(run_dag(path)) is None
    _delete_events()
    assert started_with(run_dag(path)) == "/models/kept"


def test_a_variable_of_the_job_overrides_the_warm_start(write_dag: WriteDag, run_dag: RunDag) -> None:
    env = {"STEPSET_WARM_START": "/models/mine"}
    path = write_dag(train("own", warm("own"), checkpoint_dir="/models/theirs", env=env), WRITES_RESULT)
    assert [started_with(run_dag(path)) for _ in range(2)] == ["/models/mine"] * 2


def test_a_mapped_task_must_name_the_asset_as_an_inlet(write_dag: WriteDag, run_dag: RunDag) -> None:
    def mapped(inlets: str) -> str:
        text = train("mapped", f"{warm('mapped')}, {inlets}", checkpoint_dir="/models/mapped")
        return text.replace("Operator(", "Operator.partial(", 1) + ".expand(args=[['a']])"

    failed = run_dag(write_dag(mapped(""), WRITES_RESULT))
    assert isinstance(failed.error, AirflowFailException), failed.explained()
    assert "asset 'mapped' is not an inlet of this task" in str(failed.error)
    path = write_dag(mapped("inlets=[Asset('mapped')]"), WRITES_RESULT)
    first, second = run_dag(path), run_dag(path)
    assert first.state == "success", first.explained()
    assert second.xcom("train[0]", map_indexes=0)["started_with"] == "/models/mapped"


@pytest.mark.frameworks
def test_the_second_run_of_the_example_starts_with_the_first_one_s_weights_and_its_event_contains_the_model(
    run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_DIGITS_HOME", str(tmp_path / "digits"))
    first, second = (run_dag(EXAMPLES / "digits_on_new_data.py", "retrain") for _ in range(2))
    assert second.state == "success", second.explained()
    before, after = first.xcom("train"), second.xcom("train")
    assert (after["start"], after["started_from"]) == ("warm start", before["checkpoint"])
    assert after["before"] == {"accuracy": before["accuracy"], "loss": before["loss"]}
    assert after["history"]["loss"][0] < before["history"]["loss"][0] / 2
    carried = asset_event_extras("digits_retrained")[-1]
    assert carried["accuracy"] == after["accuracy"]
    assert Path(carried["checkpoint"]).is_file()


def _delete_events() -> None:
    """Deletes all asset events, as `airflow db clean` does."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(AssetEvent))
