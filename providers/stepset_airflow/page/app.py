"""A FastAPI application on Airflow's API server that serves the page "Training" and its data.

The application checks the user's permissions in Airflow, and reads only Airflow's database and the files of this
package. The API server may have no access to the clusters and to the directories of local runs. Therefore only the
stacks, which a user requests with a button, are read from there.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response

from stepset.errors import StepsetError
from stepset_airflow.airflow_internals import (
    DagAccessEntity,
    GetUserDep,
    Region,
    SessionDep,
    get_auth_manager,
    get_user,
    requires_access_dag,
)
from stepset_airflow.page.permissions import may_read_stacks, permissions_of, permitted, permitted_summary
from stepset_airflow.page.queries import dags_with_runs, mapped_runs, recent_runs, run_page, stored_record
from stepset_airflow.page.run_selection import MAX_DAYS, MAX_PAGE, MAX_TEXT, RunSelection
from stepset_airflow.page.stacks import Collections, message_page, run_of_task
from stepset_airflow.page.sweep import sweep_of

PAGE = "training.html"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Airflow shows the page in a frame, so the policy allows frames of the same origin. The page contains the
    # output of runs. This output is untrusted, so the policy allows only scripts of this package.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_DOCUMENT_HEADERS = {
    **_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none';"
    " form-action 'none'; sandbox",
}
_OWN_SITE = ("same-origin", "none")
"""The values of the header Sec-Fetch-Site of requests that the page or the user has started, not another site."""
_FILE_CACHE = "private, no-cache"
_DATA_CACHE = "private, no-store"

_WITHOUT_NUL = r"^[^\x00]*$"
"""A pattern that rejects strings with the character NUL, because PostgreSQL does not accept this character."""

MAY_READ = (Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)),)
"""The permission that a user needs for the page of a task instance.

Some fields require further permissions. The function `permitted` removes these fields if the user may not read them.
"""


def make_app() -> FastAPI:
    """Returns the application.

    The application responds with status 401 if the user is not logged in, and with status 403 if the user may not read
    the requested DAG.
    """
    app = FastAPI(
        title="stepset",
        description="Distributed training runs.",
        dependencies=[Depends(get_user)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.collections = Collections()
    app.add_api_route("/training", page, methods=["GET"])
    app.add_api_route("/static/{name}", static_file, methods=["GET"])
    app.add_api_route("/api/runs", runs, methods=["GET"])
    app.add_api_route(
        "/api/dags/{dag_id}/dagRuns/{run_id}/tasks/{task_id}/sweep", sweep, methods=["GET"], dependencies=[*MAY_READ]
    )
    app.add_api_route(
        "/api/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}", run, methods=["GET"], dependencies=[*MAY_READ]
    )
    app.add_api_route(
        "/api/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/stacks",
        stacks,
        methods=["GET"],
        dependencies=[*MAY_READ, Depends(check_may_read_stacks)],
    )
    return app


def page(request: Request) -> Response:
    """Returns the HTML of the page. The page contains a script that requests the data."""
    return static_file(PAGE, request)


def static_file(name: str, request: Request) -> Response:
    """Returns a static file of the page, such as a script or a style sheet."""
    known = {each.name: each for each in (files("stepset_airflow.page") / "static").iterdir()}
    if name not in known:
        raise HTTPException(404, f"{name}: no such file")
    kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    return _file(request, known[name].read_bytes(), kind)


def run_data(
    dag_id: str,
    run_id: str,
    task_id: str,
    session: SessionDep,
    map_index: Annotated[int, Query(ge=-1)] = -1,
    region_id: UUID | None = None,
    region_index: Annotated[int | None, Query(ge=0)] = None,
) -> dict[str, Any]:
    """Returns the result of `run_page` for the task instance of a request. Responds with status 404 if it is missing.

    If the task is in a loop and the request contains no region, the result is about the latest iteration.
    """
    region = None if region_index is None else Region("" if region_id is None else str(region_id), region_index)
    found = run_page(session, dag_id, run_id, task_id, map_index, region)
    if found is None:
        raise HTTPException(404, f"task {task_id} of run {run_id} of DAG {dag_id} does not exist")
    return found


RunData = Annotated[dict[str, Any], Depends(run_data)]


def run(dag_id: str, user: GetUserDep, found: RunData) -> Response:
    """Returns the data of a task instance's run."""
    may = permissions_of(user)(dag_id)
    found["stacks"] = may_read_stacks(user, dag_id)
    if found["training"] is not None:
        found["training"] = permitted(found["training"], may)
    found["tries"] = [permitted_summary(each, may) for each in found["tries"]]
    return _data(found)


def check_may_read_stacks(request: Request, dag_id: str, user: GetUserDep) -> None:
    """Rejects a request for stacks that another site has started, or for which the user lacks the permission."""
    if request.headers.get("sec-fetch-site", _OWN_SITE[0]) not in _OWN_SITE or not may_read_stacks(user, dag_id):
        raise HTTPException(403, "you may not read the stacks of this DAG's ranks")


def stacks(request: Request, session: SessionDep, found: RunData) -> Response:
    """Returns an HTML document with the stacks of a task instance's running ranks, or why these cannot be read.

    The ranks continue.
    """
    where = {name: found["task"][name] for name in found["task"] if name not in ("state", "try_number", "tries")}
    record, name = stored_record(session, where), (found["training"] or {}).get("run", "")
    session.close()  # the ranks may need long to answer
    try:
        run = run_of_task(where, found["training"], record)
        body, status = request.app.state.collections.read((run.namespace, run.name), run.document), 200
    except StepsetError as error:
        body, status = message_page(str(error), name), 503
    return Response(body, status, media_type="text/html", headers={**_DOCUMENT_HEADERS, "Cache-Control": _DATA_CACHE})


def sweep(
    dag_id: str,
    run_id: str,
    task_id: str,
    session: SessionDep,
    user: GetUserDep,
    metric: Annotated[str, Query(max_length=MAX_TEXT)] = "",
) -> Response:
    """Returns the data of the runs of all instances of a mapped task. See `sweep_of`."""
    total, rows = mapped_runs(session, dag_id, run_id, task_id)
    if total == 0:
        raise HTTPException(404, f"task {task_id} of run {run_id} of DAG {dag_id} is not mapped, or does not exist")
    may = permissions_of(user)(dag_id)
    readable = [(task, None if document is None else permitted(document, may)) for task, document in rows]
    return _data({**sweep_of(readable, metric), "total": total})


def runs(
    session: SessionDep,
    user: GetUserDep,
    text: Annotated[str, Query(max_length=MAX_TEXT, pattern=_WITHOUT_NUL)] = "",
    phase: Annotated[str, Query(max_length=MAX_TEXT, pattern=_WITHOUT_NUL)] = "",
    days: Annotated[int | None, Query(ge=1, le=MAX_DAYS)] = None,
    page: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 1,
) -> Response:
    """Returns one page of the list of runs. RunSelection describes the parameters.

    The list contains the runs of all DAGs whose task instances the user may read.
    """
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    may = permissions_of(user)
    # The number of returned rows is limited. Runs that the user may not read are excluded by the query, because
    # otherwise they would take the place of runs that the user may read.
    permitted_dags = [dag_id for dag_id in dags_with_runs(session, readable) if may(dag_id).task_instances]
    found = recent_runs(session, permitted_dags, RunSelection(text, phase, days, page))
    for row in found["runs"]:
        if row["training"] is not None:
            row["training"] = permitted_summary(row["training"], may(row["task"]["dag_id"]))
    return _data(found)


def _data(data: Any) -> Response:
    """Returns a response with the data as JSON.

    Proxies and browsers must not store the response, because it contains lines of logs.
    """
    body = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Response(body, media_type="application/json", headers={**_HEADERS, "Cache-Control": _DATA_CACHE})


def _file(request: Request, body: bytes, kind: str) -> Response:
    """Returns a response with a file of the page, or a response with status 304 if the browser has the file."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "Cache-Control": _FILE_CACHE, "ETag": tag}
    # A proxy may have changed the tag to a weak tag. Airflow also does this when it compresses responses.
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)
