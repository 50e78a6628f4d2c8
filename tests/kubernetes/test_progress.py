"""If no process follows a run, the progress of the run is read from the end of rank 0's log, within a time limit."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import read_run
from stepset.run_status import Phase, Progress, RunStatus
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.watch.cluster.streams import left

KINDS = {"/jobsets": "JobSet", "/pods": "Pod", "/jobs": "Job", "/events": "Event"}


def read(log: tuple[int, Any], *, wanted: bool = True) -> tuple[RunStatus, list[tuple[str, dict[str, str]]]]:
    """Returns the state of a run whose pods still exist, and the requests for logs. `log` is their response."""
    objects = [change.object for change in left("jobset_succeeds")]

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/log"):
            return log
        found = [each for each in objects if each["kind"] == KINDS.get(f"/{path.rpartition('/')[2]}")]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": found}

    async def reading() -> tuple[RunStatus, list[tuple[str, dict[str, str]]]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with anyio.fail_after(60):
                status = await read_run(NamespacedClient(client, "ns"), objects[0], 0.0, progress=wanted)
            return status, [(path, query) for _, path, query in server.requests if path.endswith("/log")]

    return asyncio.run(reading())


def test_the_last_lines_of_rank_0s_pod_are_read() -> None:
    status, ((path, query),) = read((200, {"stepset": {"step": 7, "metrics": {"loss": 0.5}}}))
    assert status.progress == Progress(7, None, {"loss": 0.5})
    assert path.startswith("/api/v1/namespaces/ns/pods/run-node-0-0-")
    assert query == {"tailLines": "1000", "container": "node"}


def test_a_list_of_runs_reads_no_log() -> None:
    status, requests = read((200, {"stepset": {"step": 7}}), wanted=False)
    assert (status.progress, requests) == (None, [])


@pytest.mark.parametrize(
    "log",
    [(200, {"loss": 0.5}), (403, {"kind": "Status", "message": "no"}), (500, {"kind": "Status"}), (200, None)],
    ids=["without-progress", "forbidden", "lost-node", "no-answer"],
)
def test_a_status_has_no_progress_if_none_can_be_read(log: tuple[int, Any]) -> None:
    status, requests = read(log)
    assert (status.phase, status.progress) == (Phase.SUCCEEDED, None)
    assert requests
