"""A login page, a proxy or another server answers instead of the API server: each command states what answered."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from stepset.errors import InfrastructureError
from stepset.exit_code import ExitCode
from tests.cli.conftest import Cli, cli
from tests.kubernetes.nowhere import client_at, kubeconfig

__all__ = ["cli"]

HTML = b"<!DOCTYPE html><html><body>Log in\x1b[2J</body></html>"


@dataclass(frozen=True)
class Page:
    """The only response of a server."""

    status: int
    content_type: str = ""
    body: bytes = b""
    location: str = ""


PAGES = {
    "redirect": Page(302, "text/html", HTML, "https://user:hunter2@login.example/auth?token=hunter2#hunter2"),
    "redirect without a type": Page(307, location="/login"),
    "bare 404": Page(404),
    "404 of a Go server": Page(404, "text/plain; charset=utf-8", b"404 page not found\n"),
    "404 page": Page(404, "text/html", HTML),
    "JSON 404": Page(404, "application/json", b'{"error": "not found"}'),
    "login page": Page(200, "text/html; charset=utf-8", HTML),
    "JSON": Page(200, "application/json", b'{"login": "/auth"}'),
    "JSON list": Page(200, "application/json", b"[]"),
    "another kind": Page(200, "application/json", b'{"kind": "Index", "items": []}'),
    "empty body": Page(200, "application/json"),
    "no content": Page(204),
    "401 page": Page(401, "text/html", HTML),
    "403 page": Page(403, "text/html", HTML),
    "400 of a TLS server": Page(400, "text/plain", b"Client sent an HTTP request to an HTTPS server.\n\x1b[2J"),
    "502 page": Page(502, "text/html", HTML),
    "503 without a body": Page(503),
}
DESCRIBED = {
    "redirect": "HTTP 302 (text/html, redirect to https://login.example/auth)",
    "redirect without a type": "HTTP 307 (redirect to /login, empty body)",
    "bare 404": "HTTP 404 (empty body)",
    "404 of a Go server": "HTTP 404 (text/plain, '404 page not found')",
    "404 page": "HTTP 404 (text/html)",
    "JSON 404": "HTTP 404 (application/json, no kind)",
    "login page": "HTTP 200 (text/html)",
    "JSON": "HTTP 200 (application/json, no kind)",
    "JSON list": "HTTP 200 (application/json)",
    "another kind": "HTTP 200 (application/json, kind 'Index')",
    "empty body": "HTTP 200 (application/json, empty body)",
    "no content": "HTTP 204 (empty body)",
    "401 page": "HTTP 401 (text/html)",
    "403 page": "HTTP 403 (text/html)",
    "400 of a TLS server": "HTTP 400 (text/plain, 'Client sent an HTTP request to an HTTPS server.",
    "502 page": "HTTP 502 (text/html)",
    "503 without a body": "HTTP 503 (empty body)",
}
COMMANDS = {
    "list": ("list",),
    "list --all-namespaces": ("list", "--all-namespaces"),
    "status": ("status", "train"),
    "wait": ("wait", "train"),
    "logs": ("logs", "train"),
    "diagnose": ("diagnose", "train"),
    "cancel": ("cancel", "train"),
    "delete": ("delete", "train"),
    "prune": ("prune", "--older-than", "1d"),
    "exec": ("exec", "train", "--", "true"),
    "run": ("run", "--framework", "plain", "--image", "a", "--command", "--", "true"),
    "validate --server": ("validate", "--server", "--framework", "plain", "--image", "a", "--command", "--", "true"),
    "doctor": ("doctor",),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    respond: Callable[[str], Page]

    def handle_any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        page = type(self).respond(self.path)
        self.send_response(page.status)
        for name, value in (("Content-Type", page.content_type), ("Location", page.location)):
            if value:
                self.send_header(name, value)
        if page.status != 204:
            self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815  # the names are those of http.server

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Prints nothing if a client closes its connection."""


@contextmanager
def serving(respond: Callable[[str], Page], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serves on this machine; yields the port. `respond` returns the response to a request for a path."""
    handler = type("Handler", (_Handler,), {"respond": staticmethod(respond)})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def cluster(words: tuple[str, ...], config: str) -> list[str]:
    """The arguments of a command that uses the cluster of a kubeconfig."""
    backend = ("--backend", "kubernetes") if words[0] != "validate" else ()
    place = () if "--all-namespaces" in words else ("--namespace", "ns")
    return [words[0], *backend, "--kubeconfig", config, *place, *words[1:]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("page", PAGES)
def test_each_command_states_what_answered(cli: Cli, tmp_path: Path, command: str, page: str) -> None:
    with serving(lambda _: PAGES[page]) as port:
        config = kubeconfig(tmp_path, port)
        found = cli(*cluster(COMMANDS[command], config))
    assert found.code == ExitCode.INFRASTRUCTURE, (found.out, found.err)
    shown = found.out + found.err
    (error,) = [line for line in shown.splitlines() if DESCRIBED[page] in line]
    assert f"127.0.0.1:{port}" in error
    assert re.search(r"(; |  fix: )(check the server's address|log in again|try again)", shown)
    if page not in ("401 page", "502 page", "503 without a body"):
        assert re.search(r"answered (GET|POST) /\S+ with HTTP", error)
    assert not any(each in shown for each in ("hunter2", "\x1b[2J", "Traceback")) and len(shown) < 3000


def test_a_login_page_behind_tls_is_described(cli: Cli, tmp_path: Path) -> None:
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out crt -days 2"
    named = ["-subj", "/CN=a", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made.split(), *named], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with serving(lambda _: PAGES["login page"], context) as port:
        path = Path(kubeconfig(tmp_path, port))
        config = yaml.safe_load(path.read_text().replace("http://", "https://"))
        config["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "crt")
        path.write_text(yaml.safe_dump(config))
        found = cli("list", "--backend", "kubernetes", "--kubeconfig", str(path))
    assert found.code == ExitCode.INFRASTRUCTURE
    assert f"server https://127.0.0.1:{port}: answered GET /" in found.err
    assert DESCRIBED["login page"] in found.err


def api_server(path: str) -> Page:
    """An API server without runs and without the controllers of runs. It answers as k8s.io/apiserver v0.36."""
    group = path.partition("?")[0].removeprefix("/").split("/")
    if path.startswith("/version"):
        return Page(200, "application/json", b'{"major": "1", "gitVersion": "v1.36.0"}')
    if group[0] == "apis" and group[1] not in ("apps", "batch"):
        return Page(404, "text/plain; charset=utf-8", b"404 page not found\n")
    if group[-1] in ("train", "unknown"):
        refused = {"kind": "Status", "code": 404, "message": f'"{group[-1]}" not found', "details": {"name": group[-1]}}
        return Page(404, "application/json", json.dumps(refused).encode())
    listed = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
    return Page(200, "application/json", json.dumps(listed).encode())


def test_an_api_server_without_the_controllers_has_no_runs(cli: Cli, tmp_path: Path) -> None:
    with serving(api_server) as port:
        config = kubeconfig(tmp_path, port)
        listed = cli(*cluster(("list",), config))
        status = cli(*cluster(("status", "train"), config))
    assert listed.code == 0 and "no runs found" in listed.err
    assert status.code == ExitCode.BAD_INPUT and "'train' is not in namespace ns" in status.err


def test_a_log_that_is_a_login_page_is_not_shown_as_output() -> None:
    async def read(port: int) -> list[bytes]:
        async with client_at(port) as client, client.stream("/api/v1/namespaces/ns/pods/p/log", {}, 10) as pieces:
            return [piece async for piece in pieces]

    with serving(lambda _: PAGES["login page"]) as port, pytest.raises(InfrastructureError, match=r"\(text/html\)"):
        asyncio.run(read(port))
