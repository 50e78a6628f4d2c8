"""Nothing that happens after a successful training makes its task fail or start the training again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from airflow.sdk import Asset, BaseXCom
from airflow.sdk.execution_time import task_runner

from stepset.watch.present.sentences import NOT_FINITE
from stepset_airflow.assets import report_to_assets
from stepset_airflow.run.record_store import RecordStore
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import asset_event_extras
from tests.airflow.test_stored_record import RECORD
from tests.reported.test_results_that_json_cannot_express import NAN_RESULT, NAN_SCRIPT

pytestmark = [pytest.mark.airflow, pytest.mark.local]

LOCAL = 'task_id="train", backend="local", framework="plain", num_nodes=1, script="train.py", retries=2'
COUNTS = """
    import json, os
    with open("started", "a") as file:
        file.write("x")
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"loss": 0.5}, file)
"""


class RefusingXCom(BaseXCom):
    """The XCom backend of a deployment whose storage is not available."""

    @staticmethod
    def serialize_value(*_: Any, **__: Any) -> NoReturn:
        raise ConnectionError("the bucket is not available")


def trained_once(path: Path) -> bool:
    return (path.parent / "started").read_text() == "x"


def test_nan_in_the_result_is_none_in_the_xcom_and_in_the_event_of_the_asset(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    run = run_dag(write_dag(f'DistributedTrainOperator({LOCAL}, outlets=[Asset("nan_model")])', NAN_SCRIPT))
    assert (run.state, run.tries("train")) == ("success", 1)
    assert run.xcom("train") == NAN_RESULT
    extra = asset_event_extras("nan_model")[-1]
    assert {name: extra[name] for name in NAN_RESULT} == NAN_RESULT
    assert NOT_FINITE in " ".join(run.lines)


def test_a_value_that_the_decorated_function_cannot_return_is_none(write_dag: WriteDag, run_dag: RunDag) -> None:
    task = """
        @task.distributed_train(backend="local", framework="plain", num_nodes=1, retries=2)
        def train():
            return {"loss": float("nan"), "model": object(), "epochs": 3}

        train()
    """
    run = run_dag(write_dag(task))
    assert (run.state, run.tries("train")) == ("success", 1)
    assert run.xcom("train") == {"loss": None, "model": None, "epochs": 3}


def test_an_xcom_backend_that_raises_does_not_fail_the_task(
    write_dag: WriteDag, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "XCom", RefusingXCom)
    path = write_dag(f"DistributedTrainOperator({LOCAL})", COUNTS)
    run = run_dag(path)
    assert (run.state, run.tries("train")) == ("success", 1), run.explained()
    assert trained_once(path)
    (warning,) = [line for line in run.lines if "XCom" in line and "bucket" in line]
    assert warning.endswith("so the task has no XCom: ConnectionError: the bucket is not available")


def test_multiple_outputs_of_a_result_that_is_not_a_mapping_do_not_fail_the_task(
    write_dag: WriteDag, run_dag: RunDag
) -> None:
    path = write_dag(f"DistributedTrainOperator({LOCAL}, multiple_outputs=True)", COUNTS.replace('{"loss": 0.5}', "7"))
    run = run_dag(path)
    assert (run.state, run.tries("train")) == ("success", 1), run.explained()
    assert trained_once(path)
    assert any("multiple_outputs requires a mapping, and the result is int" in line for line in run.lines)


def test_a_task_can_be_mapped_over_the_result(write_dag: WriteDag, run_dag: RunDag) -> None:
    tasks = f"""
        @task
        def show(x):
            return x

        show.expand(x=DistributedTrainOperator({LOCAL}).output)
    """
    run = run_dag(write_dag(tasks, COUNTS.replace('{"loss": 0.5}', "[1, 2]")))
    assert run.state == "success", run.explained()
    assert {run.xcom(f"show[{index}]", map_indexes=index) for index in (0, 1)} == {1, 2}


class Refusing:
    """The state of assets in a deployment whose state cannot be written."""

    def __getitem__(self, _: Any) -> NoReturn:
        raise RuntimeError("the API server answered 500")


def test_an_asset_that_cannot_be_updated_is_a_warning_and_the_others_are_updated() -> None:
    events = {Asset("b"): SimpleNamespace(extra={})}
    context: Any = {"outlet_events": events, "asset_state_store": Refusing()}
    warnings: list[str] = []
    report_to_assets(context, [Asset("a"), Asset("b")], {"loss": 0.5}, warnings.append)
    assert events[Asset("b")].extra == {"loss": 0.5}
    assert len(warnings) == 1 and warnings[0].startswith("asset a cannot be updated with the result of the run: KeyErr")
    report_to_assets(context, [Asset("b")], {"checkpoint": "/c"}, warnings.append)
    assert warnings[1].endswith("RuntimeError: the API server answered 500")


def test_the_end_of_a_successful_run_that_cannot_be_stored_is_a_warning() -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("the API server answered 500")

    state: Any = SimpleNamespace(set=refuse)
    records, warnings = RecordStore(state), list[str]()
    assert not records.save_end(RECORD, warnings.append), "its objects are kept, which show another try the end"
    assert warnings == ["the end of run train-1 cannot be stored: RuntimeError: the API server answered 500"]
    with pytest.raises(RuntimeError, match="answered 500"):
        records.save_end(replace(RECORD, ended="fail"), warnings.append)
