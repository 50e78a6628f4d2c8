"""Documents that other programs wrote, and users without all permissions: the page's data, from its application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset_airflow.page.document import VERSION, summary_of
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.run_selection import PAGE_SIZE
from stepset_airflow.page.stored_document import MAX_STORED_BYTES, read_document, read_summary
from tests.airflow.page.stored import StoredRuns, stored_runs
from tests.fuzzing import FUZZED

HOSTILE = "bad\u202egnp"
RUN = RunStatus("train-1", "train", "kubernetes", created=100.0, world_size=1, result={"loss": 0.5})
FAILURE = Failure(FailureKind.USER_ERROR, f"failed {HOSTILE}", "Fix it.", rank=0, tail=("last words",), error="cause")
RANKS = (RankStatus("rank 0", 0, "pod", "node", "Failed", last_line="the last line"),)


def document(**changes: Any) -> dict[str, Any]:
    """The document of a failed run with progress, metrics and a result, as stepset writes it."""
    history = RunHistory({"namespace": "ml", "target": "jobset", "try_number": 1})
    history.record(RUN.with_(phase=Phase.RUNNING, started=101.0, progress=Progress(1, 0.5, {"loss": 1.0})), 102.0)
    failed = RUN.with_(phase=Phase.FAILED, failure=FAILURE, ranks=RANKS, notes=("a note",), finished=103.0)
    history.record(failed, 104.0)
    written: dict[str, Any] = json.loads(json.dumps(history.document(105.0)))
    return {**written, **changes}


def test_a_document_that_stepset_wrote_is_read_with_printable_texts() -> None:
    read = read_document(document())
    assert read is not None
    assert "\\u202e" in read["failure"]["headline"]
    assert {**read, "failure": None} == {**document(), "failure": None}
    assert read_summary(summary_of(document())) is not None


def test_a_document_is_readable_whatever_step_the_training_reports() -> None:
    for step, shown in ((2**53, 2**53), (2**60, None), (-(2**60), None)):
        history = RunHistory({"namespace": "ml", "target": "jobset", "try_number": 1})
        history.record(RUN.with_(phase=Phase.RUNNING, progress=Progress(step, 0.5, {"loss": 1.0})), 102.0)
        read = read_document(json.loads(json.dumps(history.document(105.0))))
        assert read is not None and read["progress"] == {"step": shown, "progress": 0.5}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@FUZZED
@given(st.sampled_from(sorted(document())), JSON)
def test_any_value_of_a_field_is_read_or_makes_the_document_unreadable(field: str, value: Any) -> None:
    for changed in (document(**{field: value}), {field: value, "version": VERSION}, value):
        read = read_document(changed)
        assert read is None or json.loads(json.dumps(summary_of(read), allow_nan=False)) is not None
        history = RunHistory({"namespace": "ml", "target": "jobset", "try_number": 1}, read)
        for step in (1, 2):  # a process that continues the document of another
            history.record(RUN.with_(phase=Phase.RUNNING, progress=Progress(step, 0.5, {"loss": 1.0})), 102.0 + step)
        assert read_document(json.loads(json.dumps(history.document(105.0), allow_nan=False))) is not None


BROKEN: dict[str, Any] = {
    "text": "foreign",
    "list": [1],
    "other version": {"version": 99},
    "nothing but a version": {"version": VERSION},
    "failure": document(failure="text"),
    "ranks": document(ranks=[["rank 0"]]),
    "time": document(created=1e308),
    "not finite": document(created=float("inf")),
    "nested": document(result=[[[[["x"]]]]]),
    "large": document(result="x" * (MAX_STORED_BYTES + 1)),
}


@pytest.fixture
def runs(airflow_db: None, tmp_path: Path) -> Iterator[StoredRuns]:
    """The broken documents as tasks of one DAG, and a readable one as the last."""
    with stored_runs(f"sqlite:///{tmp_path / 'runs.db'}") as stored:
        stored.add_all(
            [("dag", f"task{index}", value, {}) for index, value in enumerate([*BROKEN.values(), document()])]
        )
        yield stored


@pytest.fixture
def client(runs: StoredRuns) -> Iterator[Any]:
    """A client of the application."""
    from fastapi.testclient import TestClient

    with TestClient(runs.application) as made:
        yield made


def path(index: int) -> str:
    return f"/api/dags/dag/dagRuns/run/taskInstances/task{index}"


def test_a_broken_document_is_one_unreadable_row(client: Any) -> None:
    answer = client.get("/api/runs")
    assert answer.status_code == 200
    rows = {row["task"]["task_id"]: row["training"] for row in answer.json()["runs"]}
    assert {name for name, training in rows.items() if training is None} == {f"task{n}" for n in range(len(BROKEN))}
    assert rows[f"task{len(BROKEN)}"]["run"] == "train-1"
    for index, name in enumerate(BROKEN):
        page = client.get(path(index))
        assert (page.status_code, page.json()["training"], page.json()["unreadable"]) == (200, None, True), name
    assert client.get(path(len(BROKEN))).json()["unreadable"] is False


def test_data_is_stored_by_neither_proxies_nor_browsers(client: Any) -> None:
    for url in ("/api/runs", path(0)):
        assert client.get(url).headers["cache-control"] == "private, no-store"
    assert client.get("/training").headers["cache-control"] == "private, no-cache"


def test_without_the_permission_for_logs_no_text_of_the_log_is_returned(client: Any, runs: StoredRuns) -> None:
    runs.user = "TASK_LOGS"
    text = client.get("/api/runs").text + client.get(path(len(BROKEN))).text
    for words in ("failed ", "last words", "cause", "the last line", "a note", "Fix it."):
        assert words not in text
    training = client.get(path(len(BROKEN))).json()["training"]
    assert (training["withheld"], training["result"], training["failure"]["kind"]) == (
        ["task logs"],
        '{"loss": 0.5}',
        "UserError",
    )


def test_without_the_permission_for_xcoms_neither_result_nor_metrics_are_returned(
    client: Any, runs: StoredRuns
) -> None:
    runs.user = "XCOM"
    training = client.get(path(len(BROKEN))).json()["training"]
    assert (training["result"], training["progress"], training["curve"]["points"]) == (None, None, [])
    assert training["failure"]["headline"].endswith("failed bad\\u202egnp")
    (row,) = [row for row in client.get("/api/runs").json()["runs"] if row["training"] is not None]
    assert (row["training"]["run"], row["training"]["progress"]) == ("train-1", None)


def test_without_the_permission_for_task_instances_nothing_is_returned(client: Any, runs: StoredRuns) -> None:
    runs.user = "TASK_INSTANCE"
    assert client.get("/api/runs").json() == {"runs": [], "total": 0, "page": 1, "size": PAGE_SIZE}
    assert client.get(path(0)).status_code == 403


def test_newer_runs_of_dags_that_a_user_may_not_read_do_not_hide_the_others(client: Any, runs: StoredRuns) -> None:
    for index in range(PAGE_SIZE + 10):
        runs.add("busy", f"task{index}", document())
    runs.user = "DAG busy"
    rows = client.get("/api/runs").json()["runs"]
    assert {row["task"]["dag_id"] for row in rows} == {"dag"}
    assert len(rows) == len(BROKEN) + 1
    runs.user = "all"
    assert {row["task"]["dag_id"] for row in client.get("/api/runs").json()["runs"]} == {"busy"}
