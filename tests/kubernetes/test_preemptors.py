"""A status names the workload for which Kueue has preempted the run, if the account can read this workload."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import read_run
from stepset.run_status import RunStatus
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.test_queue_positions import FORBIDDEN, jobset, listing, workload

WHY = "due to prioritization in the ClusterQueue"
MESSAGE = (
    f"Preempted to accommodate a workload (UID: w-1, JobUID: uid-prod) {WHY}; preemptor path: /a; preemptee path: /a"
)


def read(answer: tuple[int, Any], *, admitted: bool = False) -> tuple[RunStatus, int]:
    """Returns the status of the run `low`, and the number of requests for its preemptor."""
    preempted = workload("low", "a")
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": MESSAGE}
    if admitted:
        evicted = {**evicted, "status": "False", "message": f"Previously: {MESSAGE}"}
        preempted["status"]["conditions"] = [{"type": each, "status": "True"} for each in ("QuotaReserved", "Admitted")]
    preempted["status"]["conditions"].append(evicted)
    asked = []

    def respond(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/workloads"):
            if query.get("labelSelector") == "kueue.x-k8s.io/job-uid=uid-prod":
                asked.append(path)
                return answer
            return 200, listing(preempted)
        return 200, listing(*([jobset("low")] if path.endswith("/jobsets") else []))

    async def reading() -> RunStatus:
        async with ApiServer(respond) as server, client_at(server.port) as client:
            return await read_run(NamespacedClient(client, "ns"), jobset("low"), 0.0)

    return asyncio.run(reading()), len(asked)


def test_a_run_that_waits_again_names_its_preemptor() -> None:
    status, requests = read((200, listing(workload("prod", "a"))))
    assert status.waiting is not None
    assert status.waiting.message == f"no quota (evicted: preempted by JobSet prod {WHY})"
    assert requests == 1


def test_the_note_about_the_restart_names_the_preemptor() -> None:
    status, _ = read((200, listing(workload("prod", "a"))), admitted=True)
    assert f"started again: Kueue had evicted the run: preempted by JobSet prod {WHY}" in status.notes


@pytest.mark.parametrize("answer", [(200, listing()), (403, FORBIDDEN), (500, {"kind": "Status"})])
def test_without_the_workload_of_the_preemptor_the_message_has_no_name(answer: tuple[int, Any]) -> None:
    status, _ = read(answer)
    assert status.waiting is not None
    assert status.waiting.message == f"no quota (evicted: preempted by another workload {WHY})"
