"""Reads the documents of runs and the states of tasks from Airflow's database.

The functions do not check permissions. The caller (app.py) must check the permissions of the user.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, and_, case, cast, func, null, or_, select

from stepset_airflow.page import task_columns
from stepset_airflow.page.document import KEY, RANK_FIELDS, summary_of
from stepset_airflow.page.past_tries import KEY as TRIES_KEY
from stepset_airflow.page.past_tries import TRIES
from stepset_airflow.page.run_selection import PAGE_SIZE, RunSelection
from stepset_airflow.page.stored_document import MAX_STORED_BYTES, read_document, read_summary
from stepset_airflow.page.sweep import MAX_RUNS
from stepset_airflow.run_record import KEY as RECORD_KEY

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from stepset_airflow.airflow_internals import Region


def run_page(
    session: Session, dag_id: str, run_id: str, task_id: str, map_index: int, region: Region | None = None
) -> dict[str, Any] | None:
    """Returns the data of a task instance's page. Returns None if the task instance does not exist.

    If the task is in a loop and `region` is None, the task instance is the latest iteration.

    Returns:
        `task`: the identity and the state of the task instance.
        `training`: the document of the last try. None if no document exists, or if the document is unreadable.
        `unreadable`: whether a document exists but is unreadable.
        `tries`: the summaries of the other tries.
        `rank_fields`: the names of the elements of each entry in the document's list `ranks`.
    """
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    query = (
        select(
            TaskInstance.id,
            TaskInstance.state,
            TaskInstance.try_number,
            TaskInstance.max_tries,
            XComModel.key,
            _value(),
            *task_columns.columns(),
        )
        .outerjoin(XComModel, and_(*task_columns.xcoms_of_task_instance(), XComModel.key == KEY))
        .where(*task_columns.is_task_instance((dag_id, run_id, task_id, map_index), region))
        .order_by(*task_columns.latest_first())
    )
    row = session.execute(query).first()
    if row is None:
        return None
    found, state, try_number, max_tries, stored, value, *where = row
    task = {
        **task_columns.identity(tuple(where)),
        "state": _text(state),
        "try_number": try_number,
        "tries": max(try_number, max_tries + 1),
    }
    training = read_document(value)
    now = (training or {}).get("run")
    tries = [each for each in _tries(session, found) if each.get("run") != now]
    unreadable = stored is not None and training is None
    return {"task": task, "training": training, "unreadable": unreadable, "tries": tries, "rank_fields": RANK_FIELDS}


def _tries(session: Session, task_instance: Any) -> list[dict[str, Any]]:
    """Returns the stored summaries of the tries of a task instance. The oldest try is the first.

    `task_instance` is the id of the task instance.
    """
    from stepset_airflow.airflow_internals import TaskInstance

    found = _stored_state(session, TRIES_KEY, TaskInstance.id == task_instance)
    read = map(read_summary, found[-TRIES:]) if isinstance(found, list) else ()
    return [each for each in read if each is not None]


def stored_record(session: Session, task: Mapping[str, Any]) -> Any:
    """Returns the record of a task's run (`run_record`) as plain data. Returns None if there is none.

    Args:
        task: the columns that identify the task instance (`task_columns.identity`).
    """
    from stepset_airflow.airflow_internals import Region

    region = Region(task["region_id"], task["region_index"]) if "region_id" in task else None
    key = (task["dag_id"], task["run_id"], task["task_id"], task["map_index"])
    return _stored_state(session, RECORD_KEY, *task_columns.is_task_instance(key, region))


def _stored_state(session: Session, key: str, *is_task_instance: Any) -> Any:
    """Returns a value in the task state store of a task instance. Returns None if there is none."""
    from stepset_airflow.airflow_internals import TaskInstance
    from stepset_airflow.airflow_internals import TaskStateStoreModel as Stored

    query = (
        select(Stored.value)
        .join(TaskInstance, and_(*task_columns.stored_state_of_task_instance()))
        .where(*is_task_instance, Stored.key == key)
        .where(func.length(Stored.value) <= MAX_STORED_BYTES)
    )
    try:
        return json.loads(session.scalar(query) or "null")
    except (ValueError, RecursionError):
        return None


def mapped_runs(
    session: Session, dag_id: str, run_id: str, task_id: str
) -> tuple[int, list[tuple[dict[str, Any], Any]]]:
    """Returns the number of instances of a mapped task, and a list of the first MAX_RUNS instances.

    Each entry of the list contains the identity and the document of an instance. The document is None if no document
    exists, or if the document is unreadable.
    """
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    instances = select(TaskInstance.id).where(*task_columns.is_mapped_task((dag_id, run_id, task_id)))
    total = session.scalar(instances.with_only_columns(func.count())) or 0
    query = (
        instances.with_only_columns(*task_columns.columns(), TaskInstance.state, _value())
        .outerjoin(XComModel, and_(*task_columns.xcoms_of_task_instance(), XComModel.key == KEY))
        .order_by(*task_columns.by_map_index())
        .limit(MAX_RUNS)
    )
    rows = [
        ({**task_columns.identity(tuple(where)), "state": _text(state)}, read_document(value))
        for *where, state, value in session.execute(query)
    ]
    return total, rows


def dags_with_runs(session: Session, dag_ids: Collection[str]) -> list[str]:
    """Returns the ids of those DAGs in `dag_ids` for which a document is stored."""
    from stepset_airflow.airflow_internals import XComModel

    query = select(XComModel.dag_id).where(XComModel.key == KEY, XComModel.dag_id.in_(dag_ids)).distinct()
    return list(session.scalars(query))


def recent_runs(session: Session, dag_ids: Collection[str], wanted: RunSelection) -> dict[str, Any]:
    """Returns one page of the list of runs. The most recently updated run is the first.

    Args:
        session: the session of Airflow's database.
        wanted: the filters, and the number of the page.

    Returns:
        `runs`: the runs. The field `training` of a run is None if its document is unreadable.
        `total`: the number of runs that match the filters, on all pages.
        `page`: the number of the returned page. If the requested page does not exist, the last page is returned.
        `size`: the maximum number of runs on a page.
    """
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    documents = (
        select(TaskInstance.id)
        .join(XComModel, and_(*task_columns.xcoms_of_task_instance()))
        .where(XComModel.key == KEY, XComModel.dag_id.in_(dag_ids), *_conditions(session, wanted))
    )
    total = session.scalar(documents.with_only_columns(func.count())) or 0
    page = max(1, min(wanted.page, -(-total // PAGE_SIZE)))
    query = (
        documents.with_only_columns(*task_columns.columns(), TaskInstance.state, _value())
        .order_by(XComModel.timestamp.desc(), TaskInstance.id.desc())
        .limit(PAGE_SIZE)
        .offset((page - 1) * PAGE_SIZE)
    )
    runs = [
        {"task": {**task_columns.identity(tuple(where)), "state": _text(state)}, "training": _summary(value)}
        for *where, state, value in session.execute(query)
    ]
    return {"runs": runs, "total": total, "page": page, "size": PAGE_SIZE}


def _conditions(session: Session, wanted: RunSelection) -> list[Any]:
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    found: list[Any] = []
    if wanted.text:
        columns = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, _field(session, "run"))
        found.append(or_(*(column.icontains(wanted.text, autoescape=True) for column in columns)))
    if wanted.phase:
        found.append(_field(session, "phase") == wanted.phase)
    if wanted.days is not None:
        found.append(XComModel.timestamp >= datetime.now(UTC) - timedelta(days=wanted.days))
    return found


def _field(session: Session, name: str) -> Any:
    """Returns the SQL expression for a string field of a document.

    If the document does not contain the field, the value of the expression is NULL.

    Unlike other databases, SQLite stores JSON with infinity or NaN. But SQLite cannot read a field of such a document.
    Therefore the value of the expression is NULL for such a document.
    """
    from stepset_airflow.airflow_internals import XComModel

    found = XComModel.value[name].as_string()
    if session.get_bind().dialect.name != "sqlite":
        return found
    return case((func.json_valid(cast(XComModel.value, Text)) == 1, found), else_=null())


def _summary(value: Any) -> dict[str, Any] | None:
    document = read_document(value)
    return None if document is None else summary_of(document)


def _value() -> Any:
    """Returns the SQL expression for the value of an XCom.

    If the stored value is larger than MAX_STORED_BYTES, the value of the expression is NULL.
    """
    from stepset_airflow.airflow_internals import XComModel

    return case((func.length(cast(XComModel.value, Text)) <= MAX_STORED_BYTES, XComModel.value), else_=null())


def _text(state: Any) -> str | None:
    return None if state is None else str(getattr(state, "value", state))
