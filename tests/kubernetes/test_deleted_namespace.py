"""The end of a run that was deleted with its namespace, for an account that cannot read the namespace."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anyio
import pytest

from stepset.backends.kubernetes import deleted_namespace
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.follow import FollowOptions, RunFollower
from stepset.backends.kubernetes.listening import ListenerObserver
from stepset.run_status import RunStatus
from tests.kubernetes.api_server import Answer, ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.test_queue_positions import FORBIDDEN, jobset, listing

TERMINATING = {"kind": "Status", "code": 403, "details": {"causes": [{"reason": "NamespaceTerminating"}]}}


def deleted_run(namespace: tuple[int, Any]) -> Answer:
    """Answers for a namespace without the run. `namespace` is the response to a request for the namespace."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if method == "POST":
            return 403, TERMINATING
        if path == "/api/v1/namespaces/ns":
            return namespace
        missing = {"kind": "Status", "code": 404, "details": {"name": "one", "kind": "jobsets"}}
        return (404, missing) if path.endswith("/jobsets/one") else (200, listing())

    return answer


def followed(namespace: tuple[int, Any], releases_pods: bool) -> tuple[RunStatus, list[str]]:
    """Follows the run until its end. Returns its final status and the methods of the requests."""

    async def follow() -> tuple[RunStatus, list[str]]:
        async with ApiServer(deleted_run(namespace), watch=1.0) as server, client_at(server.port) as client:
            follower = RunFollower(
                NamespacedClient(client, "ns"),
                jobset("one"),
                ListenerObserver(None, frozenset()),
                FollowOptions(frozenset(), read_only=not releases_pods),
            )
            with anyio.fail_after(30):
                status = await follower.follow()
            return status, [method for method, _, _ in server.requests]

    return asyncio.run(follow())


def test_a_read_only_follower_sends_only_requests_that_read() -> None:
    status, methods = followed((403, FORBIDDEN), releases_pods=False)

    assert status.phase.final and set(methods) == {"GET"}


def test_another_follower_finds_the_deletion_with_a_dry_run() -> None:
    status, methods = followed((403, FORBIDDEN), releases_pods=True)

    assert status.failure is not None and status.failure.message.endswith("its namespace ns is being deleted.")
    assert "POST" in methods


def test_the_status_is_kept_if_the_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_namespace, "_TIMEOUT", 0.5)
    began = time.monotonic()

    status, _ = followed((200, None), releases_pods=False)

    assert status.phase.final and time.monotonic() - began < 25
