"""Queries Airflow's database for the page's data: the documents of runs and the states of their tasks.

The caller (app.py) checks the user's permissions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, select

from stepset_airflow.page.document import KEY, RANK_FIELDS, VERSION, summary_of
from stepset_airflow.page.past_tries import KEY as TRIES_KEY

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_KEY = ("dag_id", "run_id", "task_id", "map_index")
"""The columns that identify a task instance."""
RECENT = 50
"""Maximum runs in the list."""


def run_page(session: Session, dag_id: str, run_id: str, task_id: str, map_index: int) -> dict[str, Any] | None:
    """Returns the page of a task instance; None if the task instance does not exist.

    `training` is its document, None if it has none; `tries` contains the ends of other tries.
    """
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    key = dict(zip(_KEY, (dag_id, run_id, task_id, map_index), strict=True))
    query = (
        select(TaskInstance.state, TaskInstance.try_number, TaskInstance.max_tries, XComModel.value)
        .outerjoin(XComModel, and_(*_same_task_instance(), XComModel.key == KEY))
        .where(*_is(TaskInstance, key))
    )
    row = session.execute(query).first()
    if row is None:
        return None
    state, try_number, max_tries, value = row
    task = {
        **key,
        "state": _text(state),
        "try_number": try_number,
        "tries": max(try_number, max_tries + 1),
    }
    training = _document(value)
    now = (training or {}).get("run")
    tries = [each for each in _tries(session, key) if each.get("run") != now]
    return {"task": task, "training": training, "tries": tries, "rank_fields": RANK_FIELDS}


def _tries(session: Session, key: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns how earlier tries ended, the oldest first."""
    from stepset_airflow.airflow_internals import TaskStateStoreModel as Stored

    query = select(Stored.value).where(*_is(Stored, key), Stored.key == TRIES_KEY)
    found = json.loads(session.scalar(query) or "[]")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def recent_runs(session: Session, dag_ids: Collection[str]) -> list[dict[str, Any]]:
    """Returns the runs of DAGs, those whose documents were written last first."""
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    query = (
        select(*(getattr(XComModel, name) for name in _KEY), TaskInstance.state, XComModel.value)
        .join(TaskInstance, and_(*_same_task_instance()))
        .where(XComModel.key == KEY, XComModel.dag_id.in_(dag_ids))
        .order_by(XComModel.timestamp.desc())
        .limit(RECENT)
    )
    return [
        {"task": {**dict(zip(_KEY, where, strict=True)), "state": _text(state)}, "training": summary_of(document)}
        for *where, state, value in session.execute(query)
        if (document := _document(value)) is not None
    ]


def _same_task_instance() -> tuple[Any, ...]:
    from stepset_airflow.airflow_internals import TaskInstance, XComModel

    return tuple(getattr(XComModel, name) == getattr(TaskInstance, name) for name in _KEY)


def _is(model: Any, key: Mapping[str, Any]) -> list[Any]:
    """Returns the conditions that a row belongs to the task instance with a key."""
    return [getattr(model, name) == value for name, value in key.items()]


def _document(value: Any) -> Mapping[str, Any] | None:
    """Returns a document of this version; None for other values."""
    return value if isinstance(value, Mapping) and value.get("version") == VERSION else None


def _text(state: Any) -> str | None:
    return None if state is None else str(getattr(state, "value", state))
