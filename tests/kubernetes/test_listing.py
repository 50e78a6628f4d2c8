"""Lists of a run's objects that the server refuses, interrupts, or answers without a version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.find import read_run
from stepset.backends.kubernetes.watch.informer import Informer
from stepset.errors import InfrastructureError
from stepset.run_status import Phase, RunStatus
from tests.kubernetes.api_server import Answer, ApiServer
from tests.kubernetes.nowhere import client_at

WORKLOAD: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "run", "uid": "u", "namespace": "ns", "resourceVersion": "1", "labels": {}},
    "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 1}}}]},
}
NO_VERSION = {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}


def listing(*items: dict[str, Any], **about: str) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7", **about}, "items": list(items)}


def answers(collection: str, answer: Callable[[dict[str, str]], tuple[int, Any]]) -> Answer:
    """Answers for a run of which only the workload exists; the lists of one collection are those of `answer`."""

    def respond(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith(collection) and "watch" not in query:
            return answer(query)
        return 200, listing(WORKLOAD) if path.endswith("/jobsets") else listing()

    return respond


def read(answer: Answer) -> tuple[RunStatus, list[str]]:
    """Returns the state of the run, and the paths that were requested."""

    async def reading() -> tuple[RunStatus, list[str]]:
        async with ApiServer(answer) as server, client_at(server.port) as client:
            with anyio.fail_after(60):
                status = await read_run(NamespacedClient(client, "ns"), WORKLOAD, 0.0)
            return status, [path for _, path, _ in server.requests]

    return asyncio.run(reading())


def refusal(status: int, message: str = "no") -> tuple[int, Any]:
    return status, {"kind": "Status", "code": status, "message": message}


@pytest.mark.parametrize(("collection", "status"), [("/events", 403), ("/events", 404), ("/jobs", 404)])
def test_a_collection_that_is_optional_or_not_installed_may_be_refused(collection: str, status: int) -> None:
    assert read(answers(collection, lambda _: refusal(status)))[0].phase is Phase.PENDING


@pytest.mark.parametrize(
    ("collection", "status"), [("/events", 400), ("/events", 500), ("/events", 429), ("/jobs", 400), ("/jobs", 403)]
)
def test_every_other_refusal_is_an_error(collection: str, status: int) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot be listed: .* HTTP 4..: no|failed with HTTP"):
        read(answers(collection, lambda _: refusal(status, "no")))


def test_a_list_whose_pages_expire_is_started_again() -> None:
    replies = iter([(200, listing(**{"continue": "next"})), refusal(410), (200, listing())])
    status, paths = read(answers("/pods", lambda _: next(replies)))
    assert status.phase is Phase.PENDING
    assert sum(path.endswith("/pods") for path in paths) == 3


def test_a_list_without_a_version_is_an_error_after_few_attempts() -> None:
    requests = list[dict[str, str]]()

    def answer(query: dict[str, str]) -> tuple[int, Any]:
        requests.append(query)
        return 200, NO_VERSION

    with pytest.raises(InfrastructureError, match="pods cannot be listed: the list has no resourceVersion"):
        read(answers("/pods", answer))
    assert 1 < len(requests) < 10


def test_a_watch_whose_list_has_no_version_pauses_between_requests_and_is_reported() -> None:
    async def follow() -> tuple[str, int]:
        async with (
            ApiServer(answers("/pods", lambda _: (200, NO_VERSION))) as server,
            Informer(NamespacedClient(client_at(server.port), "ns")) as informer,
            informer.follow(WORKLOAD) as run,
        ):
            with anyio.fail_after(60):
                while not run.access_notes:
                    await run.changed.wait()
                    run.changed.clear()
            await asyncio.sleep(1)
            return run.access_notes[0], sum(path.endswith("/pods") for _, path, _ in server.requests)

    note, requests = asyncio.run(follow())
    assert "the list has no resourceVersion" in note
    assert requests < 10
