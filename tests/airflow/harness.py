"""An Airflow for the tests: a new home and database, DAG runs with `dag.test()`, and queries of their results.

Importing this module sets Airflow's environment variables, so import it before Airflow. It imports Airflow lazily.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "dags"
HOME = Path(tempfile.mkdtemp(prefix="stepset-airflow-"))
DAGS = HOME / "dags"
OURS = r"stepset|dag_file|unusual_prefix_"  # the last is Airflow's prefix for the module of a DAG file
_LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"

# Settings of another Airflow on this machine must not affect the tests.
for _name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[_name]
DAGS.mkdir()
os.environ.update(
    AIRFLOW_HOME=str(HOME),
    AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST=json.dumps(
        [
            {"name": name, "classpath": _LOCAL_BUNDLE, "kwargs": {"path": str(path)}}
            for name, path in (("tests", DAGS), ("examples", EXAMPLES))
        ]
    ),
)


def lock_file() -> Path:
    """The lock file of this environment: of Airflow 3.3 or 3.4."""
    return ROOT / "locks" / f"{Path(sys.prefix).name}.txt"


@dataclass(frozen=True)
class DagRun:
    """The result of a DAG run.

    Args:
        state: its final state.
        tasks: task instances by task id; the instances of a mapped task are train[0], train[1], ...
        log: the entries that tasks and Airflow logged.
        errors: the exceptions that tasks raised.
    """

    state: str
    tasks: dict[str, Any]
    log: list[dict[str, Any]]
    errors: list[BaseException]

    def task_state(self, task_id: str) -> str:
        return str(self.tasks[task_id].state)

    def tries(self, task_id: str) -> int:
        return int(self.tasks[task_id].try_number)

    def xcom(self, task_id: str, **wanted: Any) -> Any:
        return self.tasks[task_id].xcom_pull(task_ids=task_id.partition("[")[0], **wanted)

    @property
    def lines(self) -> list[str]:
        """The logged messages."""
        return [str(entry["event"]) for entry in self.log]

    def explained(self) -> str:
        """The errors and the last log lines, for a failed assertion."""
        return "\n".join([*(f"{type(error).__name__}: {error}" for error in self.errors), *self.lines[-60:]])

    @property
    def error(self) -> BaseException:
        """The exception of the task that failed last."""
        return self.errors[-1]


_logged: list[list[Any]] = []
"""The log of the current `run_to_end`."""


def has_logged(text: str) -> bool:
    """Whether the current run has logged exactly this line; called from a thread beside the run."""
    return any(entry["event"] == text for log in _logged for entry in list(log))


def run_to_end(path: Path, name: str = "dag", conf: dict[str, Any] | None = None) -> DagRun:
    """Runs the DAG in the variable `name` of a DAG file. Warnings of our modules are errors."""
    from structlog.testing import capture_logs

    # Airflow configures logging when it is imported, so _task_errors(), which imports it, precedes capture_logs().
    with warnings.catch_warnings(), _task_errors() as errors, capture_logs() as log:
        warnings.simplefilter("ignore")  # we cannot fix warnings of Airflow and its libraries
        warnings.filterwarnings("error", module=OURS)
        _logged[:] = [log]
        finished = _load(path, name).test(run_conf=conf)
    tasks = {
        f"{ti.task_id}[{ti.map_index}]" if ti.map_index >= 0 else ti.task_id: ti for ti in finished.get_task_instances()
    }
    return DagRun(str(finished.state), tasks, list(log), errors)


def run_again(path: Path, before: DagRun, name: str = "dag", *, clear: bool) -> DagRun:
    """Executes the tasks of a finished DAG run again.

    Args:
        path: the DAG file.
        before: the finished run.
        name: the DAG's variable in its file.
        clear: True: as after a user's clear; False: as a scheduler does after its worker died.
    """
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.session import create_session
    from structlog.testing import capture_logs

    dag, tasks = _load(path, name), dict(before.tasks)
    with warnings.catch_warnings(), _task_errors() as errors, capture_logs() as log:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module=OURS)
        for each in before.tasks:
            with create_session() as session:
                ti = tasks[each] = _next_try(session.merge(tasks[each]), session, clear=clear)
                ti.state = "scheduled"
                session.commit()
                _run_task(ti=ti, task=dag.task_dict[ti.task_id], run_triggerer=True)
    with create_session() as session:
        for ti in tasks.values():
            ti.refresh_from_db(session=session)
    return DagRun(before.state, tasks, list(log), errors)


def _next_try(ti: Any, session: Any, *, clear: bool) -> Any:
    """The next try of a task instance, after a user's clear or its worker's death; in Airflow 3.4 another row."""
    from airflow.models.taskinstance import clear_task_instances

    if clear and (cleared := clear_task_instances([ti], session, dag_run_state=False)):
        return cleared[0]
    if not clear and hasattr(ti, "working_set"):
        return ti.prepare_db_for_next_try(session)
    ti.try_number += 1
    return ti


def set_state(path: Path, state: str, name: str = "dag") -> None:
    """Sets the state of the tasks of a DAG's latest run, as the API server does for a user."""
    from airflow.utils.session import create_session

    with create_session() as session:
        for ti in last_run(path, name).tasks.values():
            session.merge(ti).state = state


def last_run(path: Path, name: str = "dag") -> DagRun:
    """The latest run of a DAG, possibly of another process; without its log and errors."""
    from airflow.models.dagrun import DagRun as Model
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(Model).where(Model.dag_id == _load(path, name).dag_id).order_by(Model.id.desc()).limit(1)
    with create_session() as session:
        found = session.scalars(query).one()
        return DagRun(str(found.state), {ti.task_id: ti for ti in found.get_task_instances(session=session)}, [], [])


def _load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"dag_file_{path.parent.name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


@contextmanager
def _task_errors() -> Iterator[list[BaseException]]:
    """Collects the exceptions of failed tasks with an Airflow listener."""
    from airflow.listeners import hookimpl
    from airflow.sdk.listener import get_listener_manager

    errors: list[BaseException] = []

    class Listener:
        @hookimpl
        def on_task_instance_failed(self, error: BaseException) -> None:
            errors.append(error)

    listener = Listener()
    get_listener_manager().add_listener(listener)
    yield errors
    get_listener_manager().pm.unregister(listener)


def rows_of_every_table() -> Iterator[str]:
    """All rows of Airflow's database, as text."""
    from airflow.utils.session import create_session
    from sqlalchemy import inspect, text

    with create_session() as session:
        for table in inspect(session.get_bind()).get_table_names():
            for row in session.execute(text(f'SELECT * FROM "{table}"')):
                yield repr(tuple(row))


def asset_event_extras(name: str) -> list[dict[str, Any]]:
    """The extras of an asset's events, the oldest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return list(session.scalars(query.where(AssetModel.name == name).order_by(AssetEvent.id)))


def asset_state(name: str, key: str) -> Any:
    """A value of an asset's state, or None."""
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetStateStoreModel.value).join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id)
        value = session.scalar(query.where(AssetModel.name == name, AssetStateStoreModel.key == key))
        return None if value is None else json.loads(value)
