"""A submission checks whether the LocalQueue of the run exists, if the account may read LocalQueues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.errors import BadInputError
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.stored_objects import StoredObjects
from tests.kubernetes.submitting import submit
from tests.targets.making import request

QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues"
FORBIDDEN = (403, {"kind": "Status", "code": 403, "message": 'User "x" cannot get resource "localqueues"'})
NOT_SERVED = (404, {"kind": "Status", "code": 404, "message": "the server could not find the requested resource"})


def requests(
    target: str, queue: tuple[int, Any] | None, queue_name: str = "team-a", *, namespace: bool = True
) -> list[str]:
    """Submits a run, and returns the paths of the requests for queues. `queue` is the reply to them, if not stored.

    `namespace` states whether the namespace exists.
    """
    paths: list[str] = []

    async def submitted() -> None:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        objects.by_path[f"{QUEUES}/team-a"] = {"metadata": {"name": "team-a", "uid": "u"}}

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if path == "/api/v1/namespaces/ns" and not namespace:
                return 404, {"kind": "Status", "reason": "NotFound", "code": 404, "details": {"kind": "namespaces"}}
            paths.extend([path] if "localqueues" in path else [])
            return queue if queue is not None and "localqueues" in path else objects.answer(method, path, query)

        async with ApiServer(answer) as server, client_at(server.port) as client:
            wanted = request(run="run", scheduling={"queue_name": queue_name})
            await submit(NamespacedClient(client, "ns"), wanted, target)

    asyncio.run(submitted())
    return paths


@pytest.mark.parametrize("target", ["jobset", "trainjob", "statefulset", "job"])
def test_a_missing_queue_is_bad_input(target: str) -> None:
    with pytest.raises(BadInputError) as found:
        requests(target, None, "nope")
    assert str(found.value) == (
        "scheduling.queue_name: LocalQueue 'nope' does not exist in namespace ns; use one that exists: team-a"
    )


def test_if_the_namespace_does_not_exist_the_error_does_not_name_the_queue() -> None:
    with pytest.raises(BadInputError) as found:
        requests("jobset", None, "nope", namespace=False)
    assert str(found.value).startswith("namespace: 'ns' does not exist; create it: kubectl create namespace ns")


def test_an_existing_queue_takes_one_request() -> None:
    assert requests("jobset", None) == [f"{QUEUES}/team-a"]


@pytest.mark.parametrize("reply", [FORBIDDEN, NOT_SERVED, (200, {})])
def test_a_queue_that_cannot_be_read_does_not_prevent_the_submission(reply: tuple[int, Any]) -> None:
    assert requests("jobset", reply, "nope") == [f"{QUEUES}/nope"]
