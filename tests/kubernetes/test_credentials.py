"""Credentials that the server refuses: the client reads them again once, because they may have been replaced."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from stepset.backends.kubernetes.api.client import client_of
from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.errors import InfrastructureError


class Server(ThreadingHTTPServer):
    """Accepts one token at a time; `shown` are the tokens of all requests."""

    good = "first"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.shown: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.server.shown.append(token)
        body = b'{"kind": "Status"}'
        self.send_response(200 if token == self.server.good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join(10)


@pytest.fixture
def kubeconfig(tmp_path: Path, server: Server) -> Path:
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "test", "user": {"token": "first"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def connection(kubeconfig: Path) -> Iterator[Connection]:
    with connect(str(kubeconfig)) as found:
        yield found


def replace(kubeconfig: Path, token: str) -> None:
    kubeconfig.write_text(kubeconfig.read_text().replace("first", token))


def test_a_request_is_sent_again_with_replaced_credentials(
    connection: Connection, server: Server, kubeconfig: Path
) -> None:
    assert connection.get("/a").accepted
    server.good = "second"
    replace(kubeconfig, "second")
    assert connection.get("/b").accepted
    assert connection.get("/c").accepted
    assert server.shown == ["first", "first", "second", "second"]


def test_a_stream_is_requested_again_with_replaced_credentials(server: Server, kubeconfig: Path) -> None:
    async def read() -> list[bytes]:
        async with client_of(str(kubeconfig)) as client:
            await client.open()
            server.good = "second"
            replace(kubeconfig, "second")
            async with client.stream("/a", {}, 10) as pieces:
                return [piece async for piece in pieces]

    assert asyncio.run(read()) == [b'{"kind": "Status"}']
    assert server.shown == ["first", "second"]


def test_credentials_that_are_still_refused_raise_after_one_retry(connection: Connection, server: Server) -> None:
    server.good = "unknown"
    with pytest.raises(InfrastructureError, match="refuses the credentials") as raised:
        connection.get("/a")
    assert not isinstance(raised.value, RefusedError)
    assert server.shown == ["first", "first"]


def test_a_kubeconfig_that_has_become_unreadable_does_not_hide_the_servers_refusal(
    connection: Connection, server: Server, kubeconfig: Path
) -> None:
    server.good = "unknown"
    kubeconfig.write_text("not: a kubeconfig")
    with pytest.raises(InfrastructureError, match="refuses the credentials"):
        connection.get("/a")


def test_many_threads_that_are_refused_at_once_all_succeed_with_the_replaced_credentials(
    connection: Connection, server: Server, kubeconfig: Path
) -> None:
    server.good = "second"
    replace(kubeconfig, "second")
    accepted: list[bool] = []
    threads = [threading.Thread(target=lambda: accepted.append(connection.get("/a").accepted)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert accepted == [True] * 8
