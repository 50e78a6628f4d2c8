"""Positions in Kueue's queues: few requests, none after a refusal; errors do not affect following a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import read_run
from stepset.backends.kubernetes.watch.informer import FollowedRun, Informer
from stepset.backends.kubernetes.watch.queue_position import QueuePositions
from stepset.backends.kubernetes.watch.selectors import of_namespace
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.kubernetes.api_server import Answer, ApiServer
from tests.kubernetes.nowhere import client_at

V2, V1 = (f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/ns/localqueues" for version in ("v1beta2", "v1beta1"))
FORBIDDEN = {"kind": "Status", "code": 403, "message": 'localqueues "a" is forbidden: x cannot get resource "..."'}
NO_SUCH_API = {"kind": "Status", "code": 404, "message": "the server could not find the requested resource"}
NO_SUCH_QUEUE = {"kind": "Status", "code": 404, "details": {"name": "a", "kind": "localqueue"}}


def jobset(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "namespace": "ns",
            "resourceVersion": "1",
            "labels": {"kueue.x-k8s.io/queue-name": "a", "stepset.dev/run": name},
        },
        "spec": {"suspend": True, "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {}}}]},
    }


def workload(name: str, queue: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"jobset-{name}",
            "uid": f"workload-{name}",
            "resourceVersion": "1",
            "ownerReferences": [{"kind": "JobSet", "name": name, "uid": f"uid-{name}"}],
        },
        "spec": {"queueName": queue},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "no quota"}]},
    }


def summary(*names: str) -> dict[str, Any]:
    items = [
        {"metadata": {"ownerReferences": [{"uid": f"uid-{name}"}]}, "positionInLocalQueue": place}
        for place, name in enumerate(names)
    ]
    return {"kind": "PendingWorkloadsSummary", "items": items}


def listing(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": list(items)}


def namespace(positions: Callable[[str], tuple[int, Any]], **queues: str) -> Answer:
    """Answers for a namespace with these runs in these queues; `positions` answers the requests for positions."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/pendingworkloads"):
            return positions(path)
        if path.endswith("/jobsets"):
            return 200, listing(*map(jobset, queues))
        if path.endswith("/workloads"):
            return 200, listing(*(workload(name, queue) for name, queue in queues.items()))
        return 200, listing()

    return answer


def namespaced(server: ApiServer) -> NamespacedClient:
    return NamespacedClient(client_at(server.port), "ns")


def position_requests(server: ApiServer) -> list[str]:
    """The paths of the requests for positions."""
    return [path for _, path, _ in server.requests if path.endswith("/pendingworkloads")]


async def placed(runs: Sequence[FollowedRun]) -> list[int | None]:
    """Waits until each run has a position; returns the positions as listeners receive them."""
    found: list[int | None] = []
    with anyio.fail_after(30):
        for run in runs:
            while (waiting := status_of(run.objects, Reports(), time.time()).waiting) is None or not waiting.position:
                await run.changed.wait()
                run.changed.clear()
            found.append(waiting.position)
    return found


def waiting(name: str = "one", queue: str = "a") -> RunObjects:
    objects = RunObjects(name, f"uid-{name}")
    for each in (jobset(name), workload(name, queue)):
        objects.see(Change("ADDED", each))
    return objects


def test_the_runs_of_an_informer_share_one_request_for_each_queue() -> None:
    places = {f"{V2}/a/pendingworkloads": summary("other", "one", "two"), f"{V2}/b/pendingworkloads": summary("three")}
    answer = namespace(lambda path: (200, places[path]), one="a", two="a", three="b")

    async def follow() -> tuple[list[int | None], list[str]]:
        async with (
            ApiServer(answer) as server,
            Informer(namespaced(server), of_namespace) as informer,
            informer.follow(jobset("one")) as one,
            informer.follow(jobset("two")) as two,
            informer.follow(jobset("three")) as three,
        ):
            found = await placed([one, two, three])
            await asyncio.sleep(2.5)  # twice the interval at which waiting runs are determined
            assert {query["limit"] for _, path, query in server.requests if path.startswith(V2)} == {"1000"}
            return found, position_requests(server)

    found, requests = asyncio.run(follow())
    assert found == [2, 3, 1]
    assert sorted(requests) == sorted(places)


def test_no_position_is_requested_for_a_run_that_does_not_wait() -> None:
    async def follow() -> list[str]:
        admitted = workload("one", "a")
        admitted["status"] = {"conditions": [{"type": "Admitted", "status": "True"}]}
        answer = namespace(lambda path: (200, summary("one")))

        def with_admitted(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if path.endswith(("/jobsets", "/workloads")):
                return 200, listing(jobset("one") if path.endswith("/jobsets") else admitted)
            return answer(method, path, query)

        async with (
            ApiServer(with_admitted) as server,
            Informer(namespaced(server)) as informer,
            informer.follow(jobset("one")),
        ):
            await asyncio.sleep(2.5)
            return position_requests(server)

    assert asyncio.run(follow()) == []


@pytest.mark.parametrize(
    ("status", "body", "requests"), [(403, FORBIDDEN, 1), (401, {}, 2), (404, NO_SUCH_API, 2)], ids=str
)
def test_no_request_is_sent_after_a_refusal(status: int, body: dict[str, Any], requests: int) -> None:
    """After a 401 the client reads its configuration again; after a 404 it tries the older version of the API."""

    async def run() -> int:
        async with ApiServer(namespace(lambda _: (status, body))) as server, client_at(server.port) as client:
            positions = QueuePositions(NamespacedClient(client, "ns"), interval=0)
            for _ in range(5):
                await positions.read([waiting()])
            return len(position_requests(server))

    assert asyncio.run(run()) == requests


def test_an_account_without_the_permission_follows_a_run_without_a_position_or_a_note() -> None:
    answer = namespace(lambda _: (403, FORBIDDEN), one="a")

    async def follow() -> None:
        async with (
            ApiServer(answer) as server,
            Informer(namespaced(server)) as informer,
            informer.follow(jobset("one")) as run,
        ):
            with anyio.fail_after(30):
                while not position_requests(server):
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            status = status_of(run.objects, Reports(), time.time())
            assert (run.error, run.access_notes, status.notes) == (None, (), ())
            assert status.waiting is not None
            assert (status.waiting.message, status.waiting.position) == ("no quota", None)

    asyncio.run(follow())


def test_the_older_version_of_the_api_is_used_if_the_newer_is_missing() -> None:
    def positions(path: str) -> tuple[int, Any]:
        return (200, summary("one")) if path.startswith(V1) else (404, NO_SUCH_API)

    async def read() -> tuple[int | None, list[str]]:
        async with ApiServer(namespace(positions)) as server, client_at(server.port) as client:
            found, run = QueuePositions(NamespacedClient(client, "ns"), interval=0), waiting()
            await found.read([run])
            await found.read([run])
            return run.position, position_requests(server)

    position, requests = asyncio.run(read())
    assert position == 1
    assert [path.removesuffix("/a/pendingworkloads") for path in requests] == [V2, V1, V1]


def positions_after(answers: list[tuple[int, Any]]) -> list[int | None]:
    """The position of a waiting run after each response of a server."""
    left = list(answers)

    async def read() -> list[int | None]:
        async with ApiServer(namespace(lambda _: left.pop(0))) as server, client_at(server.port) as client:
            positions, run, found = QueuePositions(NamespacedClient(client, "ns"), interval=0), waiting(), []
            for _ in answers:
                await positions.read([run])
                found.append(run.position)
            return found

    return asyncio.run(read())


@pytest.mark.parametrize(
    "odd",
    [(500, {}), (503, {"message": "the server is currently unable"}), (429, {}), (200, [1]), (403, FORBIDDEN)],
    ids=str,
)
def test_after_an_unusable_response_the_position_is_kept_and_requested_again(odd: tuple[int, Any]) -> None:
    """This includes a refusal by a server that has allowed the request before: it may have been restarted."""
    answers = [(200, summary("other", "one")), odd, (200, summary("one"))]

    assert positions_after(answers) == [2, 2, 1]


def test_a_queue_that_does_not_exist_yet_has_no_positions() -> None:
    answers = [(404, NO_SUCH_QUEUE), (200, summary("one"))]

    assert positions_after(answers) == [None, 1]


def test_a_status_states_the_position_after_one_request() -> None:
    async def read() -> tuple[int | None, int]:
        answer = namespace(lambda _: (200, summary("other", "one")), one="a")
        async with ApiServer(answer) as server, client_at(server.port) as client:
            status = await read_run(NamespacedClient(client, "ns"), jobset("one"), 0.0)
            assert status.waiting is not None
            return status.waiting.position, len(position_requests(server))

    assert asyncio.run(read()) == (2, 1)
