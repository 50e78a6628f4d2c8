"""Removes fields from the document of a run's page if the user has no permission to read these fields.

A document contains lines of the task's log and values of XComs. Airflow has separate permissions for task logs and for
XComs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepset_airflow.airflow_internals import DagAccessEntity, DagDetails, DagModel, get_auth_manager

_IN_THE_LOG = "the reason is in the task's log"


@dataclass(frozen=True)
class Permissions:
    """States whether a user may read the task instances, the task logs and the XComs of a DAG."""

    task_instances: bool
    logs: bool
    xcoms: bool


def permissions_of(user: Any) -> Callable[[str], Permissions]:
    """Returns a function that takes the id of a DAG and returns the user's permissions for this DAG.

    The returned function queries Airflow's auth manager once for each DAG.
    """
    known: dict[str, Permissions] = {}

    def of(dag_id: str) -> Permissions:
        if dag_id not in known:
            details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
            known[dag_id] = Permissions(
                *(
                    get_auth_manager().is_authorized_dag(method="GET", access_entity=part, details=details, user=user)
                    for part in (DagAccessEntity.TASK_INSTANCE, DagAccessEntity.TASK_LOGS, DagAccessEntity.XCOM)
                )
            )
        return known[dag_id]

    return of


def may_read_stacks(user: Any, dag_id: str) -> bool:
    """Returns whether a user may read the stacks of the running ranks of a DAG.

    The stacks contain names of the code, as the task's log does, and a program is started in each pod. Therefore a user
    needs the permission to read task logs, and the permission to change task instances, with which a user can also stop
    the run.
    """
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return permissions_of(user)(dag_id).logs and get_auth_manager().is_authorized_dag(
        method="PUT", access_entity=DagAccessEntity.TASK_INSTANCE, details=details, user=user
    )


def permitted(document: Mapping[str, Any], may: Permissions) -> dict[str, Any]:
    """Returns a copy of a document without the fields that the user may not read.

    The last lines of ranks and the messages of failures, problems and events require the permission to read task logs.
    The result and the metrics require the permission to read XComs. The field `withheld` of the returned document
    contains the names of the missing permissions.
    """
    found = dict(document)
    if not may.logs:
        failure = found["failure"]
        found["failure"] = failure and {**failure, "headline": f"{failure['kind']}: {_IN_THE_LOG}", "rows": []}
        found["trouble"] = found["trouble"] and {"summary": _IN_THE_LOG, "advice": ""}
        found["events"] = []
        found["ranks"] = [[*row[:-1], ""] for row in found["ranks"]]
    if not may.xcoms:
        found |= {"result": None, "progress": None, "curve": {"x": "step", "names": [], "points": [], "stride": 1}}
    withheld = [name for name, allowed in (("task logs", may.logs), ("XComs", may.xcoms)) if not allowed]
    return {**found, "withheld": withheld}


def permitted_summary(summary: Mapping[str, Any], may: Permissions) -> dict[str, Any]:
    """Returns a copy of the summary of a document without the fields that the user may not read."""
    found = dict(summary)
    if not may.logs and found["failure"]:
        found["failure"] = _IN_THE_LOG
    if not may.xcoms:
        found["progress"] = None
    return found
