"""The connection to an API server: which one, as whom, and what it means when it does not answer.

Called by the CLI, which hands the connection to whatever asks the server something. Requests are plain: a path, a
mapping, a reply; the `kubernetes` package does credentials and TLS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType
from urllib.parse import urlencode

from stepset.backends.kubernetes.kubeconfig import Source, find
from stepset.errors import BadInputError, InfrastructureError

Namespace = NewType("Namespace", str)

REQUEST_TIMEOUT = 60
"""Seconds a server has to answer one request."""

_CONNECT_TIMEOUT = 15

# urllib3 puts the connection before what befell it, in a form that depends on its version.
_CONNECTION = re.compile(r"^(<[^>]*>|\w+\(.*?\)): ")


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


class Connection:
    """An API server and who asks it.

    Args:
        api: a kubernetes.client.ApiClient.
        namespace: where the context puts objects.
    """

    def __init__(self, api: Any, namespace: str) -> None:
        self._api = api
        self.server: str = api.configuration.host
        self.namespace = Namespace(namespace)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.rest_client.pool_manager.clear()
        self._api.close()

    def post(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Reply:
        """Sends an object.

        Args:
            path: of the collection.
            body: the object.
            query: parameters.

        Raises:
            InfrastructureError: the server cannot be reached, does not know who asks, or fails.
            BadInputError: the credentials cannot be sent.
        """
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        # ApiClient.call_api has other parameters and results in kubernetes 30, 36 and 37; its pool is the same.
        address = f"{self.server}{path}{f'?{urlencode(query)}' if query else ''}"
        try:
            response = self._api.rest_client.pool_manager.request(
                "POST",
                address,
                body=json.dumps(body).encode(),
                headers=self._headers(),
                timeout=Timeout(connect=_CONNECT_TIMEOUT, read=REQUEST_TIMEOUT),
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        except ValueError:
            # http.client shows the header, and with it the token; so neither text nor cause is passed on.
            raise BadInputError(
                f"server {self.server}: the kubeconfig's credentials cannot be sent; look for line breaks in the token"
            ) from None
        return self._reply(response.status, response.data, response.headers.getlist("Warning"))

    def _headers(self) -> dict[str, str]:
        sent = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "stepset"}
        token = self._api.configuration.auth_settings().get("BearerToken")  # looks after renewal
        return {**sent, token["key"]: token["value"]} if token else sent

    def _reply(self, status: int, data: bytes, warnings: Any) -> Reply:
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
        if status == 401:
            raise InfrastructureError(
                f"server {self.server}: refuses the credentials; log in again, or check the user of the kubeconfig's"
                " context"
            )
        if status == 429 or status >= 500:
            said = " ".join(str(body.get("message", "")).split())[:300]
            raise InfrastructureError(
                f"server {self.server}: failed with HTTP {status}{f': {said}' if said else ''}; try again, or ask who"
                " runs the cluster"
            )
        return Reply(status, body, tuple(map(_warning, warnings)))

    def _unreachable(self, error: object) -> InfrastructureError:
        said = " ".join(_CONNECTION.sub("", str(error)).split())[:200]
        return InfrastructureError(
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
    configuration = client.Configuration()
    configuration.retries = False
    source: Source = find(kubeconfig, context)
    namespace = source.load(configuration)
    return Connection(client.ApiClient(configuration), namespace)


def _warning(header: str) -> str:
    """The text of a Warning header, `299 - "text"` (RFC 7234 5.5)."""
    text = header.partition('"')[2].rpartition('"')[0]
    return text.replace('\\"', '"').replace("\\\\", "\\")
