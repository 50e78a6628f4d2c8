"""A server that accepts a request and sends nothing, as for a pod that prints nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import PodLog
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.watch.lines import Batch
from tests.kubernetes.nowhere import client_at

POD = LogPod("u", "silent", "node", "node", 0, 0, "node 0", False, True, 0, False, False)


class Silent:
    """A server that sends no responses."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self._clients: list[socket.socket] = []
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            self.requests.append(client.recv(65536))

    def close(self) -> None:
        """Stops the server after all clients have closed their connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._serving.join(60)
        for each in (self._listener, *self._clients):
            each.close()


@pytest.fixture
def server() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()


async def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Waits for a condition; returns whether it became true within `seconds`."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition() and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)
    return condition()


def pod_log(client: Client) -> PodLog:
    async def ignore(batch: Batch, position: object) -> None:
        """Does nothing."""

    return PodLog(NamespacedClient(client, "ns"), POD, ignore, LogConnections())


def test_a_request_without_a_response_is_cancelled_at_once(server: Silent) -> None:
    async def cancelled() -> bool:
        async with client_at(server.port) as client:

            async def request() -> None:
                async with client.stream("/", {}, 120):
                    pass

            requesting = asyncio.create_task(request())
            assert await until(lambda: bool(server.requests))
            requesting.cancel()
            return await until(requesting.done, 10)

    assert asyncio.run(cancelled())


def test_a_log_reader_without_a_response_is_cancelled_at_once(server: Silent) -> None:
    async def closed() -> bool:
        async with client_at(server.port) as client:
            reading = asyncio.create_task(pod_log(client).run())
            assert await until(lambda: bool(server.requests))
            reading.cancel()
            return await until(reading.done, 10)

    assert asyncio.run(closed())


def test_at_a_runs_end_the_log_is_requested_again_without_follow(server: Silent) -> None:
    async def requested_again() -> None:
        async with client_at(server.port) as client:
            log = pod_log(client)
            reading = asyncio.create_task(log.run())
            assert await until(lambda: bool(server.requests))
            assert b"follow=true" in server.requests[0]
            log.finish()
            assert await until(lambda: len(server.requests) > 1, 10)
            assert b"follow=true" not in server.requests[1]
            reading.cancel()
            assert await until(reading.done, 10)

    asyncio.run(requested_again())


def test_a_log_that_is_requested_again_is_requested_on_a_new_connection(server: Silent) -> None:
    async def requested_again() -> None:
        async with client_at(server.port) as client:
            log = pod_log(client)
            reading = asyncio.create_task(log.run())
            assert await until(lambda: bool(server.requests))
            log.reconnect()
            assert await until(lambda: len(server.requests) > 1, 10)
            assert b"follow=true" in server.requests[1]
            reading.cancel()
            assert await until(reading.done, 10)

    asyncio.run(requested_again())
