"""The connection to an API server for the triggerer's event loop: nothing in it blocks.

Which server, and as whom, is found out by connection.py in a thread, exactly as in a worker, and so are tokens renewed;
requests go over one aiohttp session. Used by shared_watch.py, async_logs.py and the trigger.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp

from stepset_airflow.connection import ClusterAccess, connect

if TYPE_CHECKING:
    from stepset.backends.kubernetes.client import Connection, Method, Reply

REQUEST_TIMEOUT, CONNECT_TIMEOUT = 60.0, 15.0
_UNAUTHORIZED = 401
_FAREWELL = 0.25


class AsyncCluster:
    """A server and who asks it, from one event loop.

    Args:
        access: which.
    """

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._connection: Connection | None = None
        self._session: aiohttp.ClientSession | None = None
        self._gave_up = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Finds out everything; the first request does it too.

        Raises:
            BadInputError: there is no such connection, or its configuration cannot be used.
        """
        async with self._opening:
            if self._session is None:
                await self._renew()

    async def close(self) -> None:
        """Ends all requests."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            if self._gave_up:
                # What is given up while it is sent says farewell by itself, which nobody can wait for
                # (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown).
                await asyncio.sleep(_FAREWELL)

    @property
    def namespace(self) -> str:
        """Where runs are."""
        return str(self.connection.namespace)

    @property
    def server(self) -> str:
        """The server's address."""
        return self.connection.server

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Reply:
        """Asks the server for something; parameters and errors are those of stepset's Connection.request."""
        data = None if body is None else json.dumps(body).encode()
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        async with self._answer(method, path, query, timeout, data, content_type) as response:
            return self.connection.reply(response.status, await response.read(), response.headers.getall("Warning", []))

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Asks for an answer that comes bit by bit; parameters and errors are those of stepset's Connection.stream."""
        from stepset.backends.kubernetes.client import RefusedError

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout)
        async with self._answer("GET", path, query, timeout) as response:
            if response.status != 200:
                raise RefusedError(self.connection.reply(response.status, await response.read(), []))
            yield response.content.iter_any()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        data: bytes | None = None,
        content_type: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer; where the credentials are refused, they are renewed once."""
        await self.open()
        try:
            response = await self._send(method, path, query, timeout, data, content_type)
            if response.status == _UNAUTHORIZED:
                _drop(response)
                async with self._opening:
                    await self._renew()
                response = await self._send(method, path, query, timeout, data, content_type)
            try:
                yield response
            finally:
                _drop(response)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise self.connection.unreachable(error or type(error).__name__) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        data: bytes | None,
        content_type: str,
    ) -> aiohttp.ClientResponse:
        assert self._session is not None
        # Renews a token that runs out, which may start a program (EKS, GKE).
        headers = await asyncio.to_thread(self.connection.headers)
        if content_type:
            headers["Content-Type"] = content_type
        address = f"{self.server}{path}{f'?{urlencode(query)}' if query else ''}"
        try:
            return await self._session.request(
                method, address, data=data, headers=headers, timeout=timeout, allow_redirects=False
            )
        except (asyncio.CancelledError, asyncio.TimeoutError):
            self._gave_up = True
            raise

    @property
    def connection(self) -> Connection:
        """What is known of the server, and of who asks; it blocks where it asks itself."""
        assert self._connection is not None
        return self._connection

    async def _renew(self) -> None:
        """Finds out anew which server and as whom; streams that are open go on."""
        extras = await extras_of(self._access.kubernetes_conn_id)
        self._connection = await asyncio.to_thread(connect, self._access, extras)
        context, proxy = await asyncio.to_thread(_tls, self._connection)
        if self._session is None:
            # As many connections at once as there are streams.
            connector = aiohttp.TCPConnector(limit=0, ssl=context)
            self._session = aiohttp.ClientSession(connector=connector, proxy=proxy, auto_decompress=True)


def _drop(response: aiohttp.ClientResponse) -> None:
    """Lets go of an answer; one that is not at its end takes its connection along at once, without a farewell."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


async def extras_of(conn_id: str | None) -> dict[str, Any]:
    """The extras of Airflow's connection, asked for without blocking."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    from stepset.errors import BadInputError

    if conn_id is None:
        return {}
    try:
        connection = await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException as error:
        if conn_id == "kubernetes_default":  # as KubernetesHook has it
            return {}
        raise BadInputError(f"kubernetes_conn_id: connection {conn_id!r} is not there; create it") from error
    return await connection.aextra_dejson()


def _tls(connection: Connection) -> tuple[ssl.SSLContext | bool, str | None]:
    """How the server is checked and who we are to it, as its configuration says; and the proxy before it."""
    configuration = connection.configuration
    if not connection.server.startswith("https"):
        return True, configuration.proxy
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return context, configuration.proxy
