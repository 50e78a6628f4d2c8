"""If no process follows a run, its progress and its hang are read from the end of logs, within a time limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import read_run
from stepset.run_status import Phase, Progress, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.state.reports import Reports
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.watch.cluster.streams import left, stream
from tests.watch.hangs.evidence import BACKWARD, SLEEP, done, flying, process, stalled

KINDS = {"/jobsets": "JobSet", "/pods": "Pod", "/jobs": "Job", "/events": "Event"}
Log = tuple[int, Any]
Requests = list[tuple[str, dict[str, str]]]
WAITS = {"collectives": [flying()]}
EVIDENCE = (
    (stalled(0, process(BACKWARD), **WAITS), stalled(1, process(BACKWARD), **WAITS)),
    (stalled(2, process(BACKWARD), **WAITS), stalled(3, process(SLEEP, syscall=230), collectives=[done()])),
)
"""The events of the two nodes: ranks 0 to 2 wait for rank 3, which sleeps."""


def ended() -> list[Any]:
    """The objects of a run that has succeeded."""
    return [change.object for change in left("jobset_succeeds")]


def running() -> list[Any]:
    """The objects of a run of two nodes whose pods run, the workload first."""
    objects, known = RunObjects("run", ""), dict[str, Any]()
    for change in stream("jobset_succeeds"):
        about = change.object["metadata"]
        if change.object["kind"] == "JobSet":
            objects = RunObjects("run", about["uid"]) if not known else objects
        known[about["uid"]] = change.object
        objects.see(change)
        if status_of(objects, Reports(), 0.0).phase is Phase.RUNNING:
            return sorted(known.values(), key=lambda each: each["kind"] != "JobSet")
    raise AssertionError


def log(*lines: dict[str, Any] | str, second: int = 0) -> Log:
    """A log with one line in each second, from `second` on."""
    texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
    return 200, "".join(
        f"2026-01-01T00:00:{at:02}.500000000Z {each}\n" for at, each in enumerate(texts, second)
    ).encode()


def event(fields: dict[str, Any]) -> str:
    return f"[stepset] {json.dumps(fields)}"


def read(objects: list[Any], answer_log: Callable[[str], Log], *, logs: bool = True) -> tuple[RunStatus, Requests]:
    """Returns the state of a run, and the requests for logs. `answer_log` returns the log of a pod."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/log"):
            return answer_log(path.split("/")[-2])
        found = [each for each in objects if each["kind"] == KINDS.get(f"/{path.rpartition('/')[2]}")]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": found}

    async def reading() -> tuple[RunStatus, Requests]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with anyio.fail_after(60):
                status = await read_run(NamespacedClient(client, "ns"), objects[0], 0.0, logs=logs)
            return status, [(path, query) for _, path, query in server.requests if path.endswith("/log")]

    return asyncio.run(reading())


def node(pod: str) -> int:
    return int(pod.split("-")[3])


def hangs(pod: str, *lines: str) -> Log:
    """The log of a pod of a run that hangs."""
    return log(*lines, *map(event, EVIDENCE[node(pod)]), second=node(pod))


def test_the_last_lines_of_rank_0s_pod_are_read() -> None:
    report = {"stepset": {"step": 7, "metrics": {"loss": 0.5}}}
    status, ((path, query),) = read(ended(), lambda _: log(report))
    assert status.progress == Progress(7, None, {"loss": 0.5})
    assert path.startswith("/api/v1/namespaces/ns/pods/run-node-0-0-")
    assert query == {"tailLines": "1000", "timestamps": "true", "container": "node"}


def test_a_list_of_runs_reads_no_log() -> None:
    status, requests = read(ended(), lambda _: log({"stepset": {"step": 7}}), logs=False)
    assert (status.progress, requests) == (None, [])


@pytest.mark.parametrize(
    "answer",
    [log({"loss": 0.5}), (403, {"kind": "Status", "message": "no"}), (500, {"kind": "Status"}), (200, None)],
    ids=["without-progress", "forbidden", "lost-node", "no-answer"],
)
def test_a_status_has_no_progress_if_none_can_be_read(answer: Log) -> None:
    status, requests = read(ended(), lambda _: answer)
    assert (status.phase, status.progress) == (Phase.SUCCEEDED, None)
    assert requests


def test_a_hang_is_read_from_the_logs_of_all_pods() -> None:
    status, requests = read(running(), lambda pod: hangs(pod, f"[rank {2 * node(pod)}] step 4", "", ""))
    assert status.hang is not None
    assert [group.ranks for group in status.hang.guilty] == [(3,)]
    assert len(requests) == 2
    assert [row.last_line_at for row in status.ranks] == [1767225600.5, None, 1767225601.5, None]
    assert {row.last_line for row in status.ranks} == {""}


def test_a_run_that_makes_progress_again_has_no_hang_and_needs_one_log() -> None:
    lines = (*map(event, EVIDENCE[0]), "[rank 0] step 5")
    status, requests = read(running(), lambda _: log(*lines))
    assert (status.phase, status.hang, len(requests)) == (Phase.RUNNING, None, 1)


@pytest.mark.parametrize("answer", [(403, {"kind": "Status", "message": "no"}), (200, None)])
def test_a_run_has_no_hang_if_the_log_of_a_running_rank_cannot_be_read(answer: Log) -> None:
    status, requests = read(running(), lambda pod: answer if node(pod) else hangs(pod))
    assert (status.phase, status.hang, len(requests)) == (Phase.RUNNING, None, 2)


def test_only_the_end_of_a_log_with_long_lines_is_used() -> None:
    status, _ = read(running(), lambda pod: hangs(pod, *[f"[rank {2 * node(pod)}] {'x' * 100_000}"] * 30))
    assert status.hang is not None
