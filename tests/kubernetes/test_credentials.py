"""Credentials that the server refuses: the client reads them again once, because they may have been replaced."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from stepset.backends.kubernetes.api.client import client_of
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import Connection, connect
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.backends.kubernetes.watch.informer import Informer
from stepset.errors import BadInputError, InfrastructureError
from stepset.watch.list_watch import WATCH_SECONDS
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig as written
from tests.kubernetes.test_informer import WORKLOAD, workload_only


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


IMPERSONATED = {
    "as": "jane",
    "as-uid": "7d9",
    "as-groups": ["team-a"],
    "as-user-extra": {"reason": ["support"]},
}


def impersonate(kubeconfig: Path, field: str) -> None:
    """Adds a context `jane`, whose user impersonates another one with the credentials of `test`."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["contexts"].append({"name": "jane", "context": {"cluster": "test", "user": "as-jane"}})
    config["users"].append({"name": "as-jane", "user": {"token": "first", field: IMPERSONATED[field]}})
    kubeconfig.write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("field", IMPERSONATED)
def test_a_user_that_impersonates_another_one_is_an_error_and_nothing_is_sent(
    server: Server, kubeconfig: Path, field: str
) -> None:
    """The kubernetes package ignores the field; the request would have the permissions of the token."""
    impersonate(kubeconfig, field)
    said = f"kubeconfig {kubeconfig}: context 'jane': user 'as-jane' has the field '{field}', which stepset does not"
    with pytest.raises(BadInputError) as raised, connect(str(kubeconfig), "jane") as opened:
        opened.get("/a")
    assert str(raised.value).startswith(said)

    async def read() -> None:
        async with client_of(str(kubeconfig), "jane") as client:
            await client.get("/a")

    with pytest.raises(BadInputError) as raised:
        asyncio.run(read())
    assert str(raised.value).startswith(said)
    assert server.shown == []


def test_a_user_of_another_context_may_impersonate(server: Server, kubeconfig: Path) -> None:
    impersonate(kubeconfig, "as")
    with connect(str(kubeconfig)) as opened:
        assert opened.get("/a").accepted


def test_impersonation_is_an_error_if_the_user_is_in_another_file_than_the_context(
    server: Server, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = kubeconfig.with_name("users")
    users.write_text(yaml.safe_dump({"users": [{"name": "test", "user": {"token": "first", "as": "jane"}}]}))
    monkeypatch.setenv("KUBECONFIG", f"{users}:{kubeconfig}")
    with pytest.raises(BadInputError, match=f"kubeconfig {users}: context 'test': user 'test' has the field 'as'"):
        connect()
    monkeypatch.setenv("KUBECONFIG", f"{kubeconfig}:{users}")  # the first user of a name counts, as for kubectl
    with connect() as opened:
        assert opened.get("/a").accepted


def test_a_run_is_followed_on_with_a_new_token_in_the_same_kubeconfig(tmp_path: Path) -> None:
    accepted = "first"

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if rotating.tokens[-1] != accepted:
            return 401, {"kind": "Status", "code": 401}
        return workload_only(method, path, query)

    rotating = ApiServer(answer, watch=0.2)

    async def rotate() -> None:
        nonlocal accepted
        async with rotating:
            path = written(tmp_path, rotating.port, "first")
            async with (
                Informer(NamespacedClient(client_of(path), "ns")) as informer,
                informer.follow(WORKLOAD) as run,
            ):
                with anyio.fail_after(60):
                    while not run.complete:
                        await asyncio.sleep(0.01)
                    accepted, refused = "second", len(rotating.tokens)
                    while len(rotating.tokens) < refused + 8:  # each reflector was refused, with the reloaded old token
                        await asyncio.sleep(0.01)
                    assert set(rotating.tokens) == {"first"} and run.error is None
                    written(tmp_path, rotating.port, "second")
                    while rotating.tokens.count("second") < 8:
                        await asyncio.sleep(0.01)
                assert run.error is None

    asyncio.run(rotate())


def test_a_watch_ends_and_is_opened_again_within_five_minutes() -> None:
    """docs/kubernetes.md states after which time the server checks the credentials again."""
    assert WATCH_SECONDS < 300
