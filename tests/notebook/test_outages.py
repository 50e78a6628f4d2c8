"""A notebook cell that waits for a run on a cluster, in a real kernel, while the API server fails."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RUN = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {
        "name": "run",
        "uid": "u",
        "namespace": "ns",
        "resourceVersion": "1",
        "labels": {"stepset.dev/run": "run"},
    },
    "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 1}}}]},
}
OUTAGE = (1.5, 8.0)
"""The begin and the end of the outage, in seconds since the first request for the run."""


def test_a_cell_that_waits_survives_an_outage_and_shows_the_end_of_a_deleted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    began: list[float] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        began.append(time.monotonic())
        since = began[-1] - began[0]
        if OUTAGE[0] < since < OUTAGE[1]:
            return 503, {"kind": "Status", "code": 503, "message": "outage"}
        exists = since <= OUTAGE[0]
        if path.endswith("/jobsets/run"):
            return (200, RUN) if exists else (404, {"kind": "Status", "code": 404, "reason": "NotFound"})
        if query.get("watch") and not exists and path.endswith("/jobsets"):
            return 200, [{"type": "DELETED", "object": RUN}]
        if method == "GET" and path.endswith("/run"):
            return 404, {"kind": "Status", "code": 404, "reason": "NotFound"}
        items = [RUN] if exists and path.endswith("/jobsets") else []
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    async def execute() -> Any:
        async with ApiServer(answer, watch=0.5) as server:
            cluster = f"stepset.ClusterOptions({kubeconfig(tmp_path, server.port)!r}, namespace='ns')"
            wait = f"import stepset\nstepset.Run('run', 'kubernetes', {cluster}).wait().phase.value"
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(wait)])  # type: ignore[no-untyped-call]  # nbformat has no types
            await NotebookClient(notebook, timeout=50, kernel_name="python3").async_execute()
            return notebook.cells[0].outputs

    *shown, value = asyncio.run(execute())
    assert value.data["text/plain"] == "'Failed'"
    (table,) = [output.data["text/html"] for output in shown if "data" in output]
    assert "was deleted" in table
