"""A client leaves no connection open, whenever a request is cancelled, even if the server does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.config import ClientConfig, Namespace
from tests.kubernetes.log_server import HEAD

TURNS = 100
"""The number of event loop turns in which a connection to this machine is opened and its TLS handshake ends."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """Starts a server that sends the beginning of a response after the TLS handshake; yields its port."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words = [*new, "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=server", "-days", "1"]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with contextlib.ExitStack() as connections, socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    raw, _ = listener.accept()
                except OSError:  # the test is over
                    return
                connections.enter_context(raw)
                with contextlib.suppress(OSError):  # the client has closed the connection
                    secure = connections.enter_context(context.wrap_socket(raw, server_side=True))
                    secure.sendall(HEAD + b"5\r\nwatch\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def config(server: int) -> ClientConfig:
    from kubernetes.client import Configuration

    configuration = Configuration()
    configuration.host, configuration.verify_ssl = f"https://127.0.0.1:{server}", False
    return ClientConfig(configuration, Namespace("default"))


@pytest.fixture
def no_warnings() -> Iterator[None]:
    """Fails the test if it causes a warning, including warnings of the garbage collector."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not [str(each.message) for each in seen]


def client_of(config: ClientConfig) -> Client:
    async def load() -> ClientConfig:
        return config

    return Client(load, config)


async def cancelled_after(turns: int, config: ClientConfig) -> None:
    async with client_of(config) as client:
        request = asyncio.create_task(client.get("/api"))
        for _ in range(turns):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)


@pytest.mark.usefixtures("no_warnings")
def test_a_connection_is_closed_whenever_its_request_is_cancelled(config: ClientConfig) -> None:
    for turns in range(TURNS):
        asyncio.run(cancelled_after(turns, config))


@pytest.mark.usefixtures("no_warnings")
def test_an_abandoned_stream_is_closed_with_its_client(config: ClientConfig) -> None:
    async def abandoned() -> bytes:
        async with client_of(config) as client, client.stream("/api", {}, 60) as pieces:
            return await anext(pieces)

    assert asyncio.run(abandoned()) == b"watch"
