"""Documents in a database, and the page's application on it, without the other parts of Airflow's API server."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING, Any

import pytest

from stepset_airflow.page.document import KEY
from stepset_airflow.run_record import KEY as RECORD_KEY
from tests.airflow.stack.postgres import NoPostgresError, Postgres
from tests.waiting import until

if TYPE_CHECKING:
    from fastapi import FastAPI
    from sqlalchemy import Engine

DAGS = ("dag", "busy")
"""DAGs that exist."""


@dataclass
class StoredRuns:
    """The documents of runs.

    Args:
        engine: the database.
        user: the name of the user who sends the next request: what this user may not read, or `all`.
        log: what Airflow's API returns as the log of each task, as JSON lines; None: it refuses.
        application: the page's application.
    """

    engine: Engine
    user: str = "all"
    log: str | None = ""
    application: FastAPI = field(init=False)

    def add(self, dag_id: str, task_id: str, value: Any, **more: Any) -> None:
        """Stores the document of a task; `more` are `run_id`, `map_index`, `state` and `timestamp`."""
        self.add_all([(dag_id, task_id, value, more)])

    def add_all(self, documents: list[tuple[str, str, Any, dict[str, Any]]]) -> None:
        """Stores documents; each has the arguments of `add`."""
        from sqlalchemy import insert

        from stepset_airflow.airflow_internals import TaskInstance, XComModel

        tasks, xcoms = [], []
        for number, (dag_id, task_id, value, more) in enumerate(documents):
            index = more.get("map_index", -1)
            where = {"dag_id": dag_id, "run_id": more.get("run_id", "run"), "task_id": task_id, "map_index": index}
            state = {"state": more.get("state", "failed"), "pool": "p", "pool_slots": 1, "queue": "q", "try_number": 1}
            tasks.append({**where, **state, "id": uuid.uuid4(), "dag_version_id": uuid.uuid4()})
            at = more.get("timestamp", datetime.now(UTC))
            run = hash((dag_id, where["run_id"], number if index < 0 else 0)) % 10**9
            xcoms.append({**where, "key": KEY, "value": value, "dag_run_id": run, "timestamp": at})
        with self.engine.begin() as connection:
            connection.execute(insert(TaskInstance.__table__), tasks)  # type: ignore[arg-type]  # Airflow's table
            connection.execute(insert(XComModel.__table__), xcoms)  # type: ignore[arg-type]

    def add_record(self, dag_id: str, task_id: str, record: Any) -> None:
        """Stores the record of a task's run."""
        from sqlalchemy import insert

        from stepset_airflow.airflow_internals import TaskStateStoreModel

        where = {"dag_id": dag_id, "run_id": "run", "task_id": task_id, "map_index": -1}
        run = hash((dag_id, "run", task_id)) % 10**9
        row = {**where, "dag_run_id": run, "key": RECORD_KEY, "value": json.dumps(record)}
        with self.engine.begin() as connection:
            connection.execute(insert(TaskStateStoreModel.__table__), [row])  # type: ignore[arg-type]


@contextmanager
def stored_runs(url: str) -> Iterator[StoredRuns]:
    """Creates the tables in a new database, and the application whose users are named after what they may not read."""
    from airflow.api_fastapi import app as airflow_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from sqlalchemy import create_engine, event
    from sqlalchemy.orm import Session

    from stepset_airflow.airflow_internals import TaskInstance, TaskStateStoreModel, XComModel, get_user
    from stepset_airflow.page.app import make_app

    class Manager(SimpleAuthManager):
        def is_authorized_dag(
            self, *, method: str, access_entity: Any = None, details: Any = None, user: Any, **_: Any
        ) -> bool:
            hidden = details is not None and f"DAG {details.id}" in user
            return access_entity is None or (access_entity.value not in user and method not in user and not hidden)

        def get_authorized_dag_ids(self, **_: Any) -> set[str]:
            return set(DAGS)

    engine = create_engine(url)
    import_all_models()
    if engine.dialect.name == "postgresql":
        # Rows may refer to DAGs that do not exist, as in SQLite.
        event.listen(
            engine, "connect", lambda connection, _: connection.execute("SET session_replication_role = replica")
        )
        Base.metadata.create_all(engine)
    else:
        tables = [model.__table__ for model in (TaskInstance, TaskStateStoreModel, XComModel)]
        Base.metadata.create_all(engine, tables=tables)  # type: ignore[arg-type]  # Airflow's tables
    runs = StoredRuns(engine)
    runs.application = make_app()

    def session() -> Iterator[Session]:
        with Session(engine) as opened:
            yield opened

    runs.application.dependency_overrides[get_user] = lambda: runs.user
    runs.application.dependency_overrides[_get_session] = session
    before = airflow_app._AuthManagerState.instance
    airflow_app._AuthManagerState.instance = Manager()
    try:
        yield runs
    finally:
        airflow_app._AuthManagerState.instance = before
        engine.dispose()


@contextmanager
def served(runs: StoredRuns) -> Iterator[str]:
    """Serves the application in a thread at /stepset, as Airflow does, and yields the URL of the page.

    In place of Airflow's API it serves one log.
    """
    import uvicorn
    from fastapi import FastAPI, Response

    def log(path: str) -> Response:
        return Response(runs.log, 403 if runs.log is None else 200, media_type="application/x-ndjson")

    application = FastAPI()
    application.mount("/stepset", runs.application)
    application.add_api_route("/api/v2/{path:path}", log)
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert until(lambda: server.started)
    yield f"http://127.0.0.1:{port}/stepset/training"
    server.should_exit = True
    thread.join(30)


@contextmanager
def running_postgres() -> Iterator[str]:
    """Starts a PostgreSQL server and yields the URL of its database; skips the test if it is not installed."""
    try:
        server = Postgres(Path(tempfile.mkdtemp(prefix="stepset-postgres-")) / "postgres")
    except NoPostgresError as error:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    server.directory.parent.chmod(0o755)
    try:
        server.start()
        yield server.address
    finally:
        server.stop()
        shutil.rmtree(server.directory.parent)
