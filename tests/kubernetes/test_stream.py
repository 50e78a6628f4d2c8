"""A response that does not begin: a server that takes a request and sends nothing, as for a pod that prints nothing."""

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
    """A server that says nothing."""

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
        """Ends it; whoever connected has gone."""
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
    """Whether something holds within some seconds."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition() and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)
    return condition()


def pod_log(client: Client) -> PodLog:
    async def ignore(batch: Batch, position: object) -> None:
        """Nothing."""

    return PodLog(NamespacedClient(client, "ns"), POD, ignore, LogConnections())


def test_a_response_that_does_not_begin_is_given_up_at_once(server: Silent) -> None:
    async def given_up() -> bool:
        async with client_at(server.port) as client:

            async def ask() -> None:
                async with client.stream("/", {}, 120):
                    pass

            asking = asyncio.create_task(ask())
            assert await until(lambda: bool(server.requests))
            asking.cancel()
            return await until(asking.done, 10)

    assert asyncio.run(given_up())


def test_a_log_of_which_nothing_has_come_is_closed_at_once(server: Silent) -> None:
    async def closed() -> bool:
        async with client_at(server.port) as client:
            reading = asyncio.create_task(pod_log(client).run())
            assert await until(lambda: bool(server.requests))
            reading.cancel()
            return await until(reading.done, 10)

    assert asyncio.run(closed())


def test_at_a_runs_end_it_is_asked_for_what_there_is(server: Silent) -> None:
    async def asked() -> None:
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

    asyncio.run(asked())


def test_a_log_that_is_requested_again_is_requested_on_a_new_connection(server: Silent) -> None:
    async def asked() -> None:
        async with client_at(server.port) as client:
            log = pod_log(client)
            reading = asyncio.create_task(log.run())
            assert await until(lambda: bool(server.requests))
            log.reconnect()
            assert await until(lambda: len(server.requests) > 1, 10)
            assert b"follow=true" in server.requests[1]
            reading.cancel()
            assert await until(reading.done, 10)

    asyncio.run(asked())
