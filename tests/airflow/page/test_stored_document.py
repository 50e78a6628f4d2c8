"""Documents that other programs wrote, and users without all permissions: the page's data, from its application."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset_airflow.page.document import KEY, VERSION, summary_of
from stepset_airflow.page.history import RunHistory
from stepset_airflow.page.queries import RECENT
from stepset_airflow.page.stored_document import MAX_STORED_BYTES, read_document, read_summary
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
def client(airflow_db: None) -> Iterator[Any]:
    """A client of the application, whose users are named after what they may not read; with tables of its own."""
    from airflow.api_fastapi import app as airflow_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from fastapi.testclient import TestClient
    from sqlalchemy import create_engine, insert
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import StaticPool

    from stepset_airflow.airflow_internals import TaskInstance, TaskStateStoreModel, XComModel, get_user
    from stepset_airflow.page.app import make_app

    class Manager(SimpleAuthManager):
        def is_authorized_dag(self, *, access_entity: Any = None, details: Any = None, user: Any, **_: Any) -> bool:
            hidden = details is not None and f"DAG {details.id}" in user
            return access_entity is None or (access_entity.value not in user and not hidden)

        def get_authorized_dag_ids(self, **_: Any) -> set[str]:
            return {"dag", "busy"}

    tables = [model.__table__ for model in (TaskInstance, TaskStateStoreModel, XComModel)]
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:

        def store(dag_id: str, task_id: str, value: Any) -> None:
            where = {"dag_id": dag_id, "run_id": "run", "task_id": task_id, "map_index": -1}
            task = {"id": uuid.uuid4(), "state": "failed", "pool": "p", "pool_slots": 1, "queue": "q", "try_number": 1}
            session.execute(insert(tables[0]).values(**where, **task, dag_version_id=uuid.uuid4()))
            session.execute(insert(tables[2]).values(**where, key=KEY, value=value, dag_run_id=len(dag_id)))
            session.commit()

        for index, value in enumerate([*BROKEN.values(), document()]):
            store("dag", f"task{index}", value)
        application = make_app()
        user: list[str] = ["all"]
        application.dependency_overrides[get_user] = lambda: user[0]
        application.dependency_overrides[_get_session] = lambda: session
        before = airflow_app._AuthManagerState.instance
        airflow_app._AuthManagerState.instance = Manager()
        with TestClient(application) as made:
            made.user = user  # type: ignore[attr-defined]  # the user of the next request
            made.store = store  # type: ignore[attr-defined]  # stores the document of another task
            yield made
        airflow_app._AuthManagerState.instance = before
    engine.dispose()


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


def test_without_the_permission_for_logs_no_text_of_the_log_is_returned(client: Any) -> None:
    client.user[0] = "TASK_LOGS"
    text = client.get("/api/runs").text + client.get(path(len(BROKEN))).text
    for words in ("failed ", "last words", "cause", "the last line", "a note", "Fix it."):
        assert words not in text
    training = client.get(path(len(BROKEN))).json()["training"]
    assert (training["withheld"], training["result"], training["failure"]["kind"]) == (
        ["task logs"],
        '{"loss": 0.5}',
        "UserError",
    )


def test_without_the_permission_for_xcoms_neither_result_nor_metrics_are_returned(client: Any) -> None:
    client.user[0] = "XCOM"
    training = client.get(path(len(BROKEN))).json()["training"]
    assert (training["result"], training["progress"], training["curve"]["points"]) == (None, None, [])
    assert training["failure"]["headline"].endswith("failed bad\\u202egnp")
    (row,) = [row for row in client.get("/api/runs").json()["runs"] if row["training"] is not None]
    assert (row["training"]["run"], row["training"]["progress"]) == ("train-1", None)


def test_without_the_permission_for_task_instances_nothing_is_returned(client: Any) -> None:
    client.user[0] = "TASK_INSTANCE"
    assert client.get("/api/runs").json() == {"runs": []}
    assert client.get(path(0)).status_code == 403


def test_newer_runs_of_dags_that_a_user_may_not_read_do_not_hide_the_others(client: Any) -> None:
    for index in range(RECENT + 10):
        client.store("busy", f"task{index}", document())
    client.user[0] = "DAG busy"
    rows = client.get("/api/runs").json()["runs"]
    assert {row["task"]["dag_id"] for row in rows} == {"dag"}
    assert len(rows) == len(BROKEN) + 1
    client.user[0] = "all"
    assert {row["task"]["dag_id"] for row in client.get("/api/runs").json()["runs"]} == {"busy"}
