"""The asynchronous client of an API server, which sends requests and reads replies or streamed responses.

The client sends its requests with aiohttp (docs/design/following.md gives the reasons). The `kubernetes` package
provides the configuration and the credentials.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode
from weakref import WeakSet

import anyio

from stepset.backends.kubernetes.api.answers import Answer
from stepset.backends.kubernetes.api.config import ClientConfig, load_config, missing_package
from stepset.backends.kubernetes.api.replies import (
    NOT_FOUND,
    UNAUTHORIZED,
    Decode,
    RefusedError,
    Reply,
    other_server,
    read_reply,
    unreachable,
)
from stepset.errors import BadInputError, StepsetError

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise missing_package(error) from error

REQUEST_TIMEOUT = 60.0
"""Seconds in which the server must answer a request."""

_CONNECT_TIMEOUT = 15.0
_KEEP_CONNECTION = 75.0
"""The number of seconds that an idle connection stays open for a later request."""
_CLOSE_TIMEOUT = 1.0
"""The maximum number of seconds that `_Session.close` waits for its connections to close."""

# The peer of an idle connection may disappear without a reset, for example because of a power failure, a firewall or
# NAT. With these options, TCP keepalive detects a missing peer within 30 s on Linux. Other systems use their default
# values, because the names of their options differ.
_KEEPALIVE = [
    (level, getattr(socket, name), value)
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    )
    if hasattr(socket, name)
]

T = TypeVar("T")
Method = Literal["GET", "POST", "PATCH", "DELETE"]
Load = Callable[[], Awaitable[ClientConfig]]


@dataclass(eq=False)
class _Session:
    """The connections that use one configuration, and the number of requests in progress.

    `replaced` is true if the client uses a newer configuration. A replaced session is closed after its last response.
    """

    config: ClientConfig
    http: aiohttp.ClientSession
    sockets: WeakSet[socket.socket]
    requests: int = 0
    replaced: bool = False

    async def close(self) -> None:
        """Closes all connections, and waits at most one second until they are closed.

        Before asyncio closes a TLS connection, asyncio waits up to 30 s for the server (asyncio/sslproto.py,
        `_do_shutdown`). The event loop may stop earlier. Therefore this method shuts down the sockets, which closes the
        connections at once.
        """
        with anyio.CancelScope(shield=True):
            await self.http.close()
            for each in self.sockets:
                with suppress(OSError):  # the socket is already closed, or was never connected
                    each.shutdown(socket.SHUT_RDWR)
            with anyio.move_on_after(_CLOSE_TIMEOUT):
                while any(each.fileno() != -1 for each in self.sockets):
                    await asyncio.sleep(0.001)

    async def close_if_replaced(self) -> None:
        """Closes the session if it was replaced and has no requests in progress."""
        if self.replaced and not self.requests:
            await self.close()


class Client:
    """Sends requests to an API server. Connections stay open until the last `async with` block of the client ends.

    A client can be used in one event loop at a time. `load` is a function that reads the configuration. If `config` is
    not given, the client calls `load` before the first request. If the server does not accept the credentials, the
    client calls `load` again.
    """

    def __init__(self, load: Load, config: ClientConfig | None = None) -> None:
        self._load, self._config = load, config
        self._session: _Session | None = None
        self._users = 0
        self._checked = False
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Client:
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            session, self._session = self._session, None
            self._opening = asyncio.Lock()  # The next `async with` block of this client may run in another event loop.
            if session is not None:
                await session.close()

    async def open(self) -> ClientConfig:
        """Returns the configuration. The first call reads the configuration.

        Raises BadInputError if the configuration cannot be used.
        """
        if self._config is None:
            async with self._opening:
                self._config = self._config or await self._load()
        return self._config

    @property
    def server(self) -> str:
        """The server's address. The address is empty until the configuration is read."""
        return "" if self._config is None else self._config.server

    async def get(self, path: str, query: Mapping[str, str] | None = None, decode: Decode = json.loads) -> Reply:
        """Reads an object or a list. Raises the errors of `request`."""
        return await self.request("GET", path, query=query, decode=decode)

    async def post(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Creates an object in a collection. Raises the errors of `request`."""
        return await self.request("POST", path, body=body, query=query)

    async def patch(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Merges fields into an object (RFC 7396). Raises the errors of `request`."""
        return await self.request("PATCH", path, body=body, query=query, content_type="application/merge-patch+json")

    async def delete(self, path: str, options: Mapping[str, Any]) -> Reply:
        """Deletes an object. `options` are fields of DeleteOptions. Raises the errors of `request`."""
        return await self.request("DELETE", path, body={"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def request(
        self,
        method: Method,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float = REQUEST_TIMEOUT,
        decode: Decode = json.loads,
    ) -> Reply:
        """Sends a request and returns the reply.

        `decode` parses the body of the response, and raises ValueError if the body is not a JSON object.

        Raises:
            UnreachableError: the server cannot be reached, does not reply within `timeout` seconds, or replies with the
                status 429 or 5xx.
            UnauthorizedError: the server does not accept the credentials.
            InfrastructureError: the response does not come from a Kubernetes API server.
            BadInputError: the configuration cannot be used.
        """
        limits = aiohttp.ClientTimeout(total=timeout, connect=2 * _CONNECT_TIMEOUT, sock_connect=_CONNECT_TIMEOUT)
        data = None if body is None else json.dumps(body).encode()
        async with self._response(method, path, query, limits, data, content_type) as response:
            with self._reading():
                content = await response.read()
            kind = str(body["kind"]) if method == "POST" and body else ""
            answer = Answer(self.server, response.status, method, path, kind, response.headers)
            warnings = response.headers.getall("Warning", [])
            date = response.headers.get("Date", "")
            reply = read_reply(answer, content, warnings, decode, date)
        await self._check_server(reply)
        return reply

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Requests a watch or a pod's log, and yields the parts of the response when they arrive.

        Raises the errors of `request`, and two other errors:

        - UnreachableError if no byte arrives for `read_timeout` seconds.
        - RefusedError if the server refuses the request.
        """
        limits = aiohttp.ClientTimeout(
            total=None, connect=2 * _CONNECT_TIMEOUT, sock_connect=_CONNECT_TIMEOUT, sock_read=read_timeout
        )
        async with self._response("GET", path, query, limits) as response:
            answer = Answer(self.server, response.status, "GET", path, headers=response.headers)
            if response.status != 200:
                with self._reading():
                    content = await response.read()
                raise RefusedError(read_reply(answer, content))
            if answer.media_type == "text/html":  # an API server sends watches as JSON, and logs as text/plain
                raise other_server(answer, answer.describe())
            async with aclosing(self._pieces(response)) as pieces:
                yield pieces

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
        data: bytes | None = None,
        content_type: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields the response.

        If the server refuses the credentials, this method reads the configuration again and repeats the request.
        """
        url = f"{path}?{urlencode(query)}" if query else path
        content = {"Content-Type": content_type} if content_type else {}
        for last in (False, True):
            session = await self._opened()
            session.requests += 1
            try:
                try:
                    response = await self._send(session, method, url, limits, data, content)
                except aiohttp.ClientSSLError as error:
                    # The server may have a new certificate, or may no longer accept the client's certificate.
                    if last or not await self._reload(session):
                        raise unreachable(session.config.server, error) from error
                    continue
                except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
                    raise unreachable(session.config.server, error) from error
                try:
                    if response.status == UNAUTHORIZED and not last and await self._reload(session):
                        continue
                    yield response
                    return
                finally:
                    response.close()
            finally:
                session.requests -= 1
                await session.close_if_replaced()

    async def _check_server(self, reply: Reply) -> None:
        """Raises InfrastructureError if a reply is not from an API server.

        An API server that does not serve a path replies like other web servers. Therefore, after the first such reply,
        this method requests a path that every API server serves.
        """
        if reply.status == NOT_FOUND and not reply.body and not self._checked:
            await self.get("/version")
            self._checked = True

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Converts errors of the block to UnreachableError. The block must do nothing except read a response."""
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(self.server, error) from error

    async def _pieces(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        pieces = aiter(response.content.iter_any())
        while True:
            with self._reading():
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece

    async def _send(
        self,
        session: _Session,
        method: str,
        url: str,
        limits: aiohttp.ClientTimeout,
        data: bytes | None,
        content: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        config = session.config
        if config.renews_token:
            async with asyncio.timeout(REQUEST_TIMEOUT):  # a credential plugin may hang
                headers = await asyncio.to_thread(config.headers)
        else:
            headers = config.headers()
        try:
            address = URL(f"{config.server}{url}", encoded=True)
        except ValueError as error:
            raise BadInputError(
                f"server {config.server}: not a valid address: {error}; check the kubeconfig"
            ) from error
        try:
            return await session.http.request(
                method,
                address,
                data=None if data is None else BytesIO(data),
                headers={**headers, **content},
                timeout=limits,
                allow_redirects=False,
                proxy=config.proxy,
                proxy_headers=config.configuration.proxy_headers,
                server_hostname=config.server_hostname,
            )
        except aiohttp.InvalidURL as error:
            raise BadInputError(f"server {config.server}: not a valid address; check the kubeconfig") from error
        except (aiohttp.ClientError, OSError):  # aiohttp's certificate errors are also instances of ValueError
            raise
        except ValueError:
            # The message of the ValueError contains the token. Therefore the new error has another message, and no
            # cause.
            raise BadInputError(
                f"server {config.server}: the kubeconfig's credentials cannot be sent; look for line breaks in the"
                " token"
            ) from None

    async def _opened(self) -> _Session:
        config = await self.open()
        async with self._opening:
            if self._session is None:
                self._session = _open(self._config or config)
            return self._session

    async def _reload(self, refused: _Session) -> bool:
        """Reads the credentials again. Returns whether the credentials may have changed.

        If another request has already read the credentials again, this method reads nothing.
        """
        async with self._opening:
            if self._session is not refused:
                return True
            try:
                config = await self._load()
                self._session = _open(config)
            except StepsetError:  # the caller reports that the server refuses the credentials
                return False
            self._config = config
            refused.replaced = True
            return True


def _open(config: ClientConfig) -> _Session:
    """Opens a session. The number of connections is unlimited, because each stream needs a connection."""
    secure, sockets = config.server.startswith("https"), WeakSet[socket.socket]()

    def new_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        sockets.add(made)
        for option in _KEEPALIVE:
            made.setsockopt(*option)
        return made

    connector = aiohttp.TCPConnector(
        limit=0,
        ssl=config.tls() if secure else True,
        keepalive_timeout=_KEEP_CONNECTION,
        socket_factory=new_socket,
    )
    return _Session(config, aiohttp.ClientSession(connector=connector, trust_env=False), sockets)


async def gather(*requests: Awaitable[T]) -> list[T]:
    """Sends requests at the same time, waits until all requests are finished, and returns the results.

    If requests fail, raises the error of the failed request that comes first in the arguments.
    """
    results = await asyncio.gather(*requests, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def client_of(kubeconfig: str | None = None, context: str | None = None) -> Client:
    """Returns a client that reads its configuration with `load_config(kubeconfig, context)`."""

    async def load() -> ClientConfig:
        return await asyncio.to_thread(load_config, kubeconfig, context)

    return Client(load)
