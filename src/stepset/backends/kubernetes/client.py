"""The connection to an API server: which one, as whom, and what it means when it does not answer.

Made by the CLI and the backend, and handed to whatever asks the server something. Requests are plain: a path, a
mapping, a reply; the `kubernetes` package does credentials and TLS. All of it may be used from several threads.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NewType
from urllib.parse import urlencode

from stepset.backends.kubernetes.kubeconfig import Source, find
from stepset.backends.kubernetes.stream import Stream
from stepset.errors import BadInputError, InfrastructureError

Namespace = NewType("Namespace", str)

REQUEST_TIMEOUT = 60
"""Seconds a server has to answer one request."""

TOO_LARGE = 413
"""HTTP status of an object that is more than the server takes."""

_CONNECT_TIMEOUT = 15
_UNAUTHORIZED = 401

# A peer that is gone without a word (power, firewall, NAT) is noticed within half a minute on connections that only
# listen. Linux' names; elsewhere the system's own times hold.
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

# urllib3 puts the connection before what befell it, in a form that depends on its version.
_CONNECTION = re.compile(r"^(<[^>]*>|\w+\(.*?\)): ")
# An API server passes on as its own failure what its etcd says of an object (go.etcd.io/etcd v3.6
# api/v3rpc/rpctypes/error.go), or its client for it (google.golang.org/grpc).
_SIZE = re.compile(r"etcdserver: request is too large|trying to send message larger than max")


@dataclass(frozen=True)
class Reply:
    """What a server said to one request.

    Args:
        status: HTTP status; never 401, 429 or 5xx, which are errors of the server or of who asks.
        body: the object, or the Status that says why not; empty where the answer is no Kubernetes object.
        warnings: its Warning headers' texts.
    """

    status: int
    body: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether it did as asked."""
        return 200 <= self.status < 300


class UnreachableError(InfrastructureError):
    """The server did not answer, or answered that it cannot just now; the same request may work later."""


class RefusedError(InfrastructureError):
    """The server will not give a stream that was asked for.

    Args:
        reply: what it said.
    """

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        said = " ".join(str(reply.body.get("message", "")).split())[:300]
        super().__init__(f"the server refused with HTTP {reply.status}: {said}")


Method = Literal["GET", "POST", "PATCH", "DELETE"]


class Connection:
    """An API server and who asks it.

    Args:
        api: a kubernetes.client.ApiClient.
        namespace: where the context puts objects.
        renew: makes such a client anew; asked when the server refuses the credentials, which others may have replaced.
    """

    def __init__(self, api: Any, namespace: str, renew: Callable[[], Any] | None = None) -> None:
        self._use(api)
        self._renew, self._renewing = renew, threading.Lock()
        self.server: str = api.configuration.host
        self.namespace = Namespace(namespace)

    def _use(self, api: Any) -> None:
        from stepset.backends.kubernetes.opening import tell

        tell(api.rest_client.pool_manager)
        self._api = api

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.rest_client.pool_manager.clear()
        self._api.close()

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Reply:
        """Reads an object or a list; raises as `request` does."""
        return self.request("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Sends an object to a collection; raises as `request` does."""
        return self.request("POST", path, body=body, query=query)

    def patch(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Merges something into an object (RFC 7396); raises as `request` does."""
        return self.request("PATCH", path, body=body, query=query, content_type="application/merge-patch+json")

    def delete(self, path: str, options: Mapping[str, Any]) -> Reply:
        """Deletes an object.

        Args:
            path: of the object.
            options: fields of DeleteOptions: preconditions, propagationPolicy, gracePeriodSeconds.

        Raises:
            InfrastructureError, BadInputError: as `request` does.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return self.request("DELETE", path, body=body)

    def request(
        self,
        method: Method,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Reply:
        """Asks the server for something.

        Args:
            method: of HTTP.
            path: of the object or collection.
            body: what is sent.
            query: parameters.
            content_type: of the body.

        Raises:
            UnreachableError: the server cannot be reached, or fails.
            InfrastructureError: it does not know who asks.
            BadInputError: the credentials cannot be sent.
        """
        response = self._send(method, path, query, REQUEST_TIMEOUT, body=body, content_type=content_type)
        return self.reply(response.status, response.data, response.headers.getlist("Warning"))

    def stream(self, path: str, query: Mapping[str, str], read_timeout: float) -> Stream:
        """An answer that comes bit by bit; it is asked for by `with`.

        Args:
            path: of a collection to watch, or of a pod's log.
            query: parameters.
            read_timeout: seconds without a byte after which it counts as cut.
        """
        return Stream(partial(self._begin, path, query, read_timeout), self.unreachable)

    def _begin(self, path: str, query: Mapping[str, str], read_timeout: float) -> Any:
        """A response whose body has not been read."""
        response = self._send("GET", path, query, read_timeout, preload_content=False)
        if response.status == 200:
            return response
        try:
            data = response.read()
        finally:
            response.close()
        raise RefusedError(self.reply(response.status, data, []))

    def _send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        read_timeout: float,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "",
        preload_content: bool = True,
    ) -> Any:
        """The answer; where the credentials are refused, they are renewed once."""
        before = self._api
        ask = partial(self._ask, method, path, query, read_timeout, body, content_type, preload_content)
        response = ask()
        if response.status == _UNAUTHORIZED and self._renewed(before):
            response.drain_conn()
            response = ask()
        return response

    def _renewed(self, refused: Any) -> bool:
        """Whether there may be other credentials than those that were refused; the first who asks finds them out."""
        if self._renew is None:
            return False
        with self._renewing:
            if self._api is refused:
                try:
                    self._use(self._renew())
                except BadInputError:  # what the server said tells more
                    return False
                refused.rest_client.pool_manager.clear()
                refused.close()
        return True

    def _ask(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        read_timeout: float,
        body: Mapping[str, Any] | None,
        content_type: str,
        preload_content: bool,
    ) -> Any:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        # ApiClient.call_api has other parameters and results in kubernetes 30, 36 and 37; its pool is the same.
        address = f"{self.server}{path}{f'?{urlencode(query)}' if query else ''}"
        try:
            return self._api.rest_client.pool_manager.request(
                method,
                address,
                body=None if body is None else json.dumps(body).encode(),
                headers={**self.headers(), **({"Content-Type": content_type} if content_type else {})},
                timeout=Timeout(connect=_CONNECT_TIMEOUT, read=read_timeout),
                redirect=False,
                preload_content=preload_content,
            )
        except (HTTPError, OSError) as error:
            raise self.unreachable(error) from error
        except ValueError:
            # http.client shows the header, and with it the token; so neither text nor cause is passed on.
            raise BadInputError(
                f"server {self.server}: the kubeconfig's credentials cannot be sent; look for line breaks in the token"
            ) from None

    @property
    def configuration(self) -> Any:
        """The client's: certificates, proxy."""
        return self._api.configuration

    def headers(self) -> dict[str, str]:
        """What every request bears, credentials included; renews them where they run out, which may take a while."""
        sent = {"Accept": "application/json", "User-Agent": "stepset"}
        token = self._api.configuration.auth_settings().get("BearerToken")  # looks after renewal
        return {**sent, token["key"]: token["value"]} if token else sent

    def reply(self, status: int, data: bytes, warnings: Any) -> Reply:
        """An answer, read.

        Args:
            status: of HTTP.
            data: its body.
            warnings: its Warning headers.

        Raises:
            UnreachableError: the server fails.
            InfrastructureError: it does not know who asks, or is no Kubernetes.
        """
        try:
            body = json.loads(data or "{}")
        except ValueError:
            body = None
        if not isinstance(body, Mapping):
            if status < 300:
                raise InfrastructureError(
                    f"server {self.server}: does not answer as Kubernetes does; check the server's address in the"
                    " kubeconfig"
                )
            body = {}
        if status == _UNAUTHORIZED:
            raise InfrastructureError(
                f"server {self.server}: refuses the credentials; log in again, or check the user of the kubeconfig's"
                " context"
            )
        if status >= 500 and _SIZE.search(str(body.get("message", ""))):
            return Reply(TOO_LARGE, body)
        if status == 429 or status >= 500:
            said = " ".join(str(body.get("message", "")).split())[:300]
            raise UnreachableError(
                f"server {self.server}: failed with HTTP {status}{f': {said}' if said else ''}; try again, or ask who"
                " runs the cluster"
            )
        return Reply(status, body, tuple(map(_warning, warnings)))

    def unreachable(self, error: object) -> UnreachableError:
        """An error of the network, in words."""
        said = " ".join(_CONNECTION.sub("", str(error)).split())[:200]
        return UnreachableError(
            f"server {self.server}: cannot be reached: {said}; check the network, or the server's address in the"
            " kubeconfig"
        )


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """A connection to the server of a kubeconfig, or inside a pod to the pod's own. Nothing is sent yet.

    Args:
        kubeconfig: a file; default: what KUBECONFIG names, else ~/.kube/config, else the pod's service account.
        context: of the kubeconfig; default: its current one.

    Raises:
        BadInputError: the `kubernetes` package is missing, or the kubeconfig cannot be used.
    """
    try:
        from kubernetes import client
    except ImportError as error:
        raise BadInputError(
            "the Python package kubernetes is missing; install it: pip install 'stepset[kubernetes]'"
        ) from error

    def opened() -> tuple[Any, str]:
        configuration = client.Configuration()
        configuration.retries = False
        source: Source = find(kubeconfig, context)
        namespace = source.load(configuration)
        api = client.ApiClient(configuration)
        api.rest_client.pool_manager.connection_pool_kw["socket_options"] = _KEEPALIVE
        return api, namespace

    api, namespace = opened()
    return Connection(api, namespace, renew=lambda: opened()[0])


def _warning(header: str) -> str:
    """The text of a Warning header, `299 - "text"` (RFC 7234 5.5)."""
    text = header.partition('"')[2].rpartition('"')[0]
    return text.replace('\\"', '"').replace("\\\\", "\\")
