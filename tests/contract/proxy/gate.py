"""One gate: a TLS port with its own credentials and faults, in front of one API server."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.contract.proxy.rules import Rule, kind_of, refusal
from tests.contract.proxy.streams import AbortedError, Source, logs, watch

_HOP = frozenset({"authorization", "host", "connection", "content-length", "transfer-encoding", "accept-encoding"})


@dataclass
class Gate:
    """A gate and its state.

    Args:
        upstream: URL of the API server.
        token: the bearer token with which requests are forwarded.
        tokens: the accepted bearer tokens.
        serials: the serial numbers of accepted client certificates.
        session: the HTTP session with the API server.

    Attributes:
        rules: name -> active fault.
        seen: kind of request -> number received, also by resource ("list pods"); `unauthorized` and `aborted` are
            counted, too.
    """

    upstream: str
    token: str
    tokens: set[str]
    serials: set[int]
    session: aiohttp.ClientSession
    rules: dict[str, Rule] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    port: int = 0
    _runner: web.AppRunner | None = None
    _open: dict[asyncio.BaseTransport, str] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _random: random.Random = field(default_factory=lambda: random.Random(23))

    async def start(self, tls: ssl.SSLContext) -> None:
        """Starts listening on a port of 127.0.0.1."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls, shutdown_timeout=0.1)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Aborts every connection and stops listening."""
        self.drop()
        if self._runner is not None:
            await self._runner.cleanup()

    def set_rule(self, name: str, rule: Rule | None) -> None:
        """Activates a fault, or removes it (None)."""
        if rule is None:
            self.rules.pop(name, None)
        else:
            self.rules[name] = rule
        self._changed.set()
        self._changed = asyncio.Event()

    def drop(self, on: tuple[str, ...] = ()) -> int:
        """Aborts open connections without a TLS close; returns their number.

        Args:
            on: only connections whose last request was of these kinds; empty: all.
        """
        found = [each for each, kind in list(self._open.items()) if not on or kind in on]
        for transport in found:
            self._open.pop(transport, None)
            _abort(transport)
        return len(found)

    def active(self, kind: str, *does: str) -> Iterator[Rule]:
        """The active faults of the sorts `does` that apply to a kind of request."""
        return (rule for rule in list(self.rules.values()) if rule.do in does and kind in rule.on)

    def spend(self, do: str, *kinds: str) -> Rule | None:
        """Returns the fault of a sort that applies to one of the kinds of a request, and decrements its count."""
        for name, rule in list(self.rules.items()):
            if rule.do == do and not set(kinds).isdisjoint(rule.on) and rule.count > 0:
                self.rules[name] = Rule(**{**rule.__dict__, "count": rule.count - 1})
                return rule
        return None

    def random_bytes(self, mean: int) -> int:
        """A random, exponentially distributed number of bytes."""
        return int(self._random.expovariate(1 / mean))

    async def may_pass(self, kind: str) -> None:
        """Waits while the fault `hang` applies to this kind of request."""
        while any(self.active(kind, "hang")):
            await self._changed.wait()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        kind = kind_of(request.method, request.path, request.query)
        transport = request.transport
        if transport is None:
            raise AbortedError
        for closed in [each for each in self._open if each.is_closing()]:
            del self._open[closed]
        self._open[transport] = kind
        for each in (kind, _with_resource(request, kind)):
            self.seen[each] += 1
        try:
            await self.may_pass(kind)
            if (error := self._refusal(request, kind)) is not None:
                return error
            return await self._forward(request, kind)
        except (AbortedError, aiohttp.ClientError, OSError):
            # The client sees the same as with a direct connection to the server.
            self.seen["aborted"] += 1
            _abort(transport)
            return web.Response(status=502)

    def _refusal(self, request: web.Request, kind: str) -> web.Response | None:
        status = next((rule.status for rule in self.active(kind, "refuse")), 0)
        if not status and not self._is_authorized(request):
            self.seen["unauthorized"] += 1
            status = 401
        body = refusal(status, request.method, request.path)
        if not status and request.query.get("previous") == "true":
            for rule in self.active(kind, "no_previous"):
                return _no_previous(rule.status, request)
        expired = None if status or kind != "watch" else self.spend("expired", kind, _with_resource(request, kind))
        if expired is not None:
            body = {**refusal(410, "", ""), "message": "too old resource version: 1 (2)"}
            if expired.count % 2:
                # Every event ends with a line end; without it, a client ignores the event as incomplete.
                line = json.dumps({"type": "ERROR", "object": body}) + "\n"
                return web.Response(text=line, content_type="application/json")
            status = 410
        return web.json_response(body, status=status) if status else None

    def _is_authorized(self, request: web.Request) -> bool:
        """Whether the request has an accepted credential."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer":
            return token in self.tokens
        certificate: dict[str, Any] = (request.transport and request.transport.get_extra_info("peercert")) or {}
        return bool(certificate) and int(certificate["serialNumber"], 16) in self.serials

    async def _forward(self, request: web.Request, kind: str) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        headers |= {"Authorization": f"Bearer {self.token}", "Accept-Encoding": "identity"}
        body = await request.read()
        address = f"{self.upstream}{request.raw_path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self.session.request(
            request.method, address, headers=headers, data=body or None, timeout=timeout, allow_redirects=False
        ) as answer:
            source = Source(self, request, answer, kind)
            if answer.status == 200 and kind == "watch":
                return await watch(source)
            if answer.status == 200 and kind == "log":
                return await logs(source)
            data = await answer.read()
            if answer.status == 200 and kind == "list":
                data = source.with_unparsable_items(data)
            await self.may_pass(kind)  # the fault may have started in the meantime
            kept = {name: value for name, value in answer.headers.items() if name in ("Content-Type", "Warning")}
            return web.Response(status=answer.status, body=data, headers=kept)


def _with_resource(request: web.Request, kind: str) -> str:
    """The kind of a request for a collection, with its resource: "list pods"."""
    return f"{kind} {request.path.rpartition('/')[2]}"


def _no_previous(status: int, request: web.Request) -> web.Response:
    """The server's response to a request for the log of a container's previous start that has been removed.

    The kubelet writes errors that occur after the start of the response into its body (kubernetes v1.36
    pkg/kubelet/kubelet_pods.go, GetKubeletContainerLogs).
    """
    if status == 200:
        return web.Response(text="unable to retrieve container logs for containerd://0123456789abcdef")
    pod = request.path.rsplit("/", 2)[-2]
    message = f'previous terminated container "{request.query.get("container")}" in pod "{pod}" not found'
    return web.json_response({**refusal(400, "", ""), "message": message, "reason": "BadRequest"}, status=status)


def _abort(transport: asyncio.BaseTransport) -> None:
    """Aborts a connection, unless it is closed: it then has no TLS protocol, and asyncio's `abort` would raise."""
    if getattr(transport, "_ssl_protocol", None) is not None:
        transport.abort()  # type: ignore[attr-defined]  # of every transport that aiohttp uses
