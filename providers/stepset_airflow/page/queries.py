"""Queries Airflow's database for the page's data: the documents of runs and the states of their tasks.

The caller (app.py) checks the user's permissions.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, and_, case, cast, func, null, select

from stepset_airflow.page import task_columns
from stepset_airflow.page.document import KEY, RANK_FIELDS, summary_of
from stepset_airflow.page.past_tries import KEY as TRIES_KEY
from stepset_airflow.page.past_tries import TRIES
from stepset_airflow.page.stored_document import MAX_STORED_BYTES, read_document, read_summary

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from stepset_airflow.airflow_internals import Region

RECENT = 50
"""Maximum runs in the list."""


def run_page(
    session: Session, dag_id: str, run_id: str, task_id: str, map_index: int, region: Region | None = None
) -> dict[str, Any] | None:
    """Returns the page of a task instance; None if the task instance does not exist.

    Without a region, it is the page of the latest iteration of a task in a loop. `training` is the last try's document;
    None if there is none, or if `unreadable` is True. `tries` contains the ends of other tries.
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
    """Returns how earlier tries of the task instance with this id ended, the oldest first."""
    from stepset_airflow.airflow_internals import TaskInstance
    from stepset_airflow.airflow_internals import TaskStateStoreModel as Stored

    query = (
        select(Stored.value)
        .join(TaskInstance, and_(*task_columns.stored_state_of_task_instance()))
        .where(TaskInstance.id == task_instance, Stored.key == TRIES_KEY)
        .where(func.length(Stored.value) <= MAX_STORED_BYTES)
    )
    try:
        found = json.loads(session.scalar(query) or "[]")
    except (ValueError, RecursionError):
        return []
    read = map(read_summary, found[-TRIES:]) if isinstance(found, list) else ()
    return [each for each in read if each is not None]


def dags_with_runs(session: Session, dag_ids: Collection[str]) -> list[str]:
    """Returns those of the DAGs whose tasks have documents."""
    from stepset_airflow.airflow_internals import XComModel

    query = select(XComModel.dag_id).where(XComModel.key == KEY, XComModel.dag_id.in_(dag_ids)).distinct()
    return list(session.scalars(query))


def recent_runs(session: Session, dag_ids: Collection[str]) -> list[dict[str, Any]]:
    """Returns the runs of DAGs, in descending order of the time when their documents were written.

    `training` is None if the document is unreadable.
    """
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    query = (
        select(*task_columns.columns(), TaskInstance.state, _value())
        .join(XComModel, and_(*task_columns.xcoms_of_task_instance()))
        .where(XComModel.key == KEY, XComModel.dag_id.in_(dag_ids))
        .order_by(XComModel.timestamp.desc())
        .limit(RECENT)
    )
    return [
        {"task": {**task_columns.identity(tuple(where)), "state": _text(state)}, "training": _summary(value)}
        for *where, state, value in session.execute(query)
    ]


def _summary(value: Any) -> dict[str, Any] | None:
    document = read_document(value)
    return None if document is None else summary_of(document)


def _value() -> Any:
    """The value of an XCom; None if it is much larger than a document."""
    from stepset_airflow.airflow_internals import XComModel

    return case((func.length(cast(XComModel.value, Text)) <= MAX_STORED_BYTES, XComModel.value), else_=null())


def _text(state: Any) -> str | None:
    return None if state is None else str(getattr(state, "value", state))
