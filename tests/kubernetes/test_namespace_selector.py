"""A ClusterQueue admits only workloads of the namespaces that its namespaceSelector selects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepset.backends.kubernetes.submit.namespace_selector import excludes
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at

NAME = "kubernetes.io/metadata.name"
READABLE = (200, {"kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}})
FORBIDDEN = (403, {"kind": "Status", "code": 403, "message": "no"})


def checked(selector: object, reply: tuple[int, Any] = READABLE) -> tuple[str, int]:
    """Returns why a ClusterQueue excludes the namespace, and the number of requests."""

    async def call() -> tuple[str, int]:
        async with ApiServer(lambda *_: reply) as server, client_at(server.port) as client:
            queue = {"metadata": {"name": "gpus"}, "spec": {"namespaceSelector": selector}}
            return await excludes(client, queue, "ns"), len(server.requests)

    return asyncio.run(call())


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "admits"),
    [
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"team": "b"}}, False),
        ({"matchLabels": {"team": "a", NAME: "other"}}, False),
        (expression("team", "In", "a", "b"), True),
        (expression("team", "In", "b"), False),
        (expression("team", "NotIn", "a"), False),
        (expression("tier", "NotIn", "a"), True),
        (expression("team", "Exists"), True),
        (expression("tier", "Exists"), False),
        (expression("tier", "DoesNotExist"), True),
        (expression("team", "DoesNotExist"), False),
    ],
)
def test_the_labels_of_the_namespace_decide(selector: dict[str, Any], admits: bool) -> None:
    why, requests = checked(selector)
    assert (why == "", requests) == (admits, 1)


def test_the_message_contains_the_selector() -> None:
    assert checked({"matchLabels": {"team": "b"}})[0] == (
        'ClusterQueue gpus admits no run of namespace ns: its namespaceSelector {"matchLabels": {"team": "b"}} does not'
        " match the labels of the namespace"
    )


@pytest.mark.parametrize(
    ("selector", "admits"),
    [({}, True), (None, False), ({"matchLabels": {NAME: "ns"}}, True), (expression(NAME, "NotIn", "ns"), False)],
)
def test_a_selector_of_the_name_takes_no_request(selector: object, admits: bool) -> None:
    why, requests = checked(selector, FORBIDDEN)
    assert (why == "", requests) == (admits, 0)


def test_a_namespace_that_cannot_be_read_is_not_checked() -> None:
    assert checked({"matchLabels": {"team": "b"}}, FORBIDDEN) == ("", 1)
