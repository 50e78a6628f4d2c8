"""Lists are read in pages of bounded size, whatever users write into the objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.backends.kubernetes.find import read_run
from stepset.backends.kubernetes.watch.pages import PAGE_BYTES, PageTooLargeError, read_page
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.run_status import Phase
from stepset.watch.list_watch import Change, ListWatch
from tests.kubernetes.api_server import Answer, ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.test_informer import EXPIRED, WORKLOAD, listing, namespaced, workload_only

PODS = Collection("/api/v1/namespaces/ns/pods", {"labelSelector": "a=b"})


def paged(pods: list[dict[str, Any]], limits: list[int]) -> Answer:
    """A server with some pods, which records the limits of the requests."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        first, limit = int(query.get("continue", "0")), int(query["limit"])
        limits.append(limit)
        page = listing(*pods[first : first + limit])
        if first + limit < len(pods):
            page["metadata"] = {**page["metadata"], "continue": str(first + limit)}
        return 200, page

    return answer


def pod(number: int, size: int) -> dict[str, Any]:
    return {"metadata": {"name": f"pod-{number}", "uid": f"uid-{number}", "annotations": {"filling": "x" * size}}}


async def listed(client: Client, list_watch: ListWatch) -> list[Change]:
    changes = await read_page(client, PODS, list_watch)
    while not list_watch.listed_once:
        changes += await read_page(client, PODS, list_watch)
    return changes


def test_a_page_that_is_too_large_is_requested_again_with_fewer_objects() -> None:
    limits: list[int] = []
    pods = [pod(number, 1_000_000) for number in range(130)]

    async def found() -> tuple[list[Change], list[int], list[int]]:
        list_watch = ListWatch()
        async with ApiServer(paged(pods, limits)) as server, client_at(server.port) as client:
            changes, first = await listed(client, list_watch), list(limits)
            list_watch.expired()
            limits.clear()
            await listed(client, list_watch)
        return changes, first, limits

    changes, first, later = asyncio.run(found())
    assert [change.object["metadata"]["uid"] for change in changes] == [f"uid-{number}" for number in range(130)]
    assert first == [125, *[15] * 9]
    assert later == [15] * 9, "later lists are too large, too"


def test_a_list_of_ordinary_objects_has_few_pages() -> None:
    limits: list[int] = []

    async def found() -> list[Change]:
        pods = [pod(number, 5_000) for number in range(2500)]
        async with ApiServer(paged(pods, limits)) as server, client_at(server.port) as client:
            return await listed(client, ListWatch())

    assert len(asyncio.run(found())) == 2500
    assert limits == [125, 1000, 1000, 1000]


def test_pages_of_large_objects_stay_small() -> None:
    limits: list[int] = []

    async def found() -> list[Change]:
        pods = [pod(number, 200_000) for number in range(300)]
        async with ApiServer(paged(pods, limits)) as server, client_at(server.port) as client:
            return await listed(client, ListWatch())

    assert len(asyncio.run(found())) == 300
    assert limits == [125, 125, 125]


def test_a_single_object_that_is_too_large_is_an_error() -> None:
    limits: list[int] = []

    async def error() -> None:
        pods = [pod(0, PAGE_BYTES)]
        async with ApiServer(paged(pods, limits)) as server, client_at(server.port) as client:
            await listed(client, ListWatch())

    with pytest.raises(PageTooLargeError, match="an object of /api/v1/namespaces/ns/pods is too large"):
        asyncio.run(error())
    assert limits == [125, 15, 1]


@pytest.mark.parametrize("expirations", [1, 3])
def test_a_run_is_read_although_the_list_of_its_pods_expires(expirations: int) -> None:
    lists: list[str] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/pods"):
            lists.append(path)
            if len(lists) <= expirations:
                return 410, EXPIRED
        return workload_only(method, path, query)

    async def phase() -> Phase:
        async with ApiServer(answer) as server:
            run = namespaced(server)
            async with run.client:
                return (await read_run(run, WORKLOAD, 0.0)).phase

    assert asyncio.run(phase()) is Phase.PENDING
    assert len(lists) == expirations + 1


def test_a_refusal_is_raised() -> None:
    async def refused() -> None:
        refusing = ApiServer(lambda *_: (403, {"kind": "Status", "code": 403}))
        async with refusing as server, client_at(server.port) as client:
            await read_page(client, PODS, ListWatch())

    with pytest.raises(RefusedError):
        asyncio.run(refused())
