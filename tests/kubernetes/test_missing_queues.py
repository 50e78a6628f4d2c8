"""A submission checks whether the queue and the priority class of the run exist, if the account may read them."""

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

CLASSES = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues"
FORBIDDEN = (403, {"kind": "Status", "code": 403, "message": 'User "x" cannot get resource "localqueues"'})
NOT_SERVED = (404, {"kind": "Status", "code": 404, "message": "the server could not find the requested resource"})


def requests(
    target: str,
    queue: tuple[int, Any] | None,
    queue_name: str = "team-a",
    *,
    namespace: bool = True,
    priority: str = "",
    classes: tuple[int, Any] | None = None,
) -> list[str]:
    """Submits a run, and returns the paths of the requests for objects of Kueue.

    Args:
        queue: the reply to requests for queues. If None, the queue `team-a` exists.
        namespace: whether the namespace exists.
        priority: the WorkloadPriorityClass of the run.
        classes: the reply to requests for WorkloadPriorityClasses. If None, the class `high` exists.
    """
    paths: list[str] = []

    async def submitted() -> None:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        objects.by_path[f"{QUEUES}/team-a"] = {"metadata": {"name": "team-a", "uid": "u"}}

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if path == "/api/v1/namespaces/ns" and not namespace:
                return 404, {"kind": "Status", "reason": "NotFound", "code": 404, "details": {"kind": "namespaces"}}
            paths.extend([path] if "kueue.x-k8s.io" in path else [])
            if path.startswith(CLASSES):
                listed = {"items": [{"metadata": {"name": "high"}}]}
                absent = (404, {"kind": "Status", "code": 404, "details": {"name": path.split("/")[-1]}})
                stored = {CLASSES: (200, listed), f"{CLASSES}/high": (200, {"metadata": {"name": "high"}})}
                return classes or stored.get(path, absent)
            return queue if queue is not None and "localqueues" in path else objects.answer(method, path, query)

        async with ApiServer(answer) as server, client_at(server.port) as client:
            labels = {"kueue.x-k8s.io/priority-class": priority} if priority else {}
            wanted = request(run="run", scheduling={"queue_name": queue_name}, labels=labels)
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


def test_a_missing_priority_class_is_bad_input() -> None:
    with pytest.raises(BadInputError) as found:
        requests("jobset", None, priority="nope")
    assert str(found.value) == (
        "labels.kueue.x-k8s.io/priority-class: WorkloadPriorityClass 'nope' does not exist; use one that exists: high"
    )


def test_an_existing_priority_class_takes_one_request() -> None:
    assert requests("jobset", None, priority="high") == [f"{QUEUES}/team-a", f"{CLASSES}/high"]


@pytest.mark.parametrize("reply", [FORBIDDEN, NOT_SERVED])
def test_a_priority_class_that_cannot_be_read_does_not_prevent_the_submission(reply: tuple[int, Any]) -> None:
    assert requests("jobset", None, priority="nope", classes=reply) == [f"{QUEUES}/team-a", f"{CLASSES}/nope"]
