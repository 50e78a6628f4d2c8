"""The page and its data on the API server: a FastAPI application that checks the user's permissions in Airflow.

It reads Airflow's database and files of this package, but neither clusters nor run directories, to which the API server
may have no access.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response

from stepset_airflow.airflow_internals import (
    DagAccessEntity,
    GetUserDep,
    Region,
    SessionDep,
    get_auth_manager,
    get_user,
    requires_access_dag,
)
from stepset_airflow.page.permissions import permissions_of, permitted, permitted_summary
from stepset_airflow.page.queries import dags_with_runs, recent_runs, run_page

PAGE = "training.html"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Airflow shows the page in a frame. The output of runs is untrusted.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_FILE_CACHE = "private, no-cache"
_DATA_CACHE = "private, no-store"

MAY_READ = (Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)),)
"""The permission for a task instance's page; `permitted` withholds fields that need others."""


def make_app() -> FastAPI:
    """Returns the application; it answers 401 to users who are not logged in, 403 for DAGs that they may not read."""
    app = FastAPI(
        title="stepset",
        description="Distributed training runs.",
        dependencies=[Depends(get_user)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.add_api_route("/training", page, methods=["GET"])
    app.add_api_route("/static/{name}", static_file, methods=["GET"])
    app.add_api_route("/api/runs", runs, methods=["GET"])
    app.add_api_route(
        "/api/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}", run, methods=["GET"], dependencies=[*MAY_READ]
    )
    return app


def page(request: Request) -> Response:
    """Returns the page, whose script requests the data."""
    return static_file(PAGE, request)


def static_file(name: str, request: Request) -> Response:
    """Returns a file of the page."""
    known = {each.name: each for each in (files("stepset_airflow.page") / "static").iterdir()}
    if name not in known:
        raise HTTPException(404, f"{name}: no such file")
    kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    return _file(request, known[name].read_bytes(), kind)


def run(
    dag_id: str,
    run_id: str,
    task_id: str,
    session: SessionDep,
    user: GetUserDep,
    map_index: Annotated[int, Query(ge=-1)] = -1,
    region_id: UUID | None = None,
    region_index: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """Returns the training of a task instance; without a region, that of the latest iteration of a loop."""
    region = None if region_index is None else Region("" if region_id is None else str(region_id), region_index)
    found = run_page(session, dag_id, run_id, task_id, map_index, region)
    if found is None:
        raise HTTPException(404, f"task {task_id} of run {run_id} of DAG {dag_id} does not exist")
    may = permissions_of(user)(dag_id)
    if found["training"] is not None:
        found["training"] = permitted(found["training"], may)
    found["tries"] = [permitted_summary(each, may) for each in found["tries"]]
    return _data(found)


def runs(session: SessionDep, user: GetUserDep) -> Response:
    """Returns recent trainings of all DAGs whose task instances the user may read."""
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    may = permissions_of(user)
    # Before the query, whose number of rows is limited: others' runs must not hide those that the user may read.
    permitted_dags = [dag_id for dag_id in dags_with_runs(session, readable) if may(dag_id).task_instances]
    rows = recent_runs(session, permitted_dags)
    for row in rows:
        if row["training"] is not None:
            row["training"] = permitted_summary(row["training"], may(row["task"]["dag_id"]))
    return _data({"runs": rows})


def _data(data: Any) -> Response:
    """Returns data as JSON that neither proxies nor browsers store: it contains lines of logs."""
    body = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Response(body, media_type="application/json", headers={**_HEADERS, "Cache-Control": _DATA_CACHE})


def _file(request: Request, body: bytes, kind: str) -> Response:
    """Returns a file of the page, or a response with status 304 if the browser already has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "Cache-Control": _FILE_CACHE, "ETag": tag}
    # A proxy or Airflow's compression may have weakened the tag.
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)
