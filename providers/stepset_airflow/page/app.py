"""The page and its data on the API server: a FastAPI application that checks the user's permissions in Airflow.

It reads Airflow's database and files of this package, but neither clusters nor run directories, to which the API server
may have no access.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response

from stepset_airflow.airflow_internals import (
    DagAccessEntity,
    GetUserDep,
    SessionDep,
    get_auth_manager,
    get_user,
    requires_access_dag,
)
from stepset_airflow.page.queries import recent_runs, run_page

PAGE = "training.html"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Airflow shows the page in a frame. The output of runs is untrusted.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

# The permissions for a task instance's page and for its log: a document contains lines of the log.
MAY_READ = (
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)),
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS)),
)


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
    return _answer(request, known[name].read_bytes(), kind)


def run(
    dag_id: str,
    run_id: str,
    task_id: str,
    request: Request,
    session: SessionDep,
    map_index: Annotated[int, Query(ge=-1)] = -1,
) -> Response:
    """Returns the training of a task instance."""
    found = run_page(session, dag_id, run_id, task_id, map_index)
    if found is None:
        raise HTTPException(404, f"task {task_id} of run {run_id} of DAG {dag_id} does not exist")
    return _answer(request, _json(found), "application/json")


def runs(request: Request, session: SessionDep, user: GetUserDep) -> Response:
    """Returns recent trainings of all DAGs that the user may read."""
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    return _answer(request, _json({"runs": recent_runs(session, readable)}), "application/json")


def _json(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _answer(request: Request, body: bytes, kind: str) -> Response:
    """Returns the body, or 304 if the browser has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}
    # A proxy or Airflow's compression may have weakened the tag.
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)
