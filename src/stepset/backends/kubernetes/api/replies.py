"""The API server's replies, and the errors that requests raise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from stepset.backends.kubernetes.api.answers import Answer, from_api_server
from stepset.errors import InfrastructureError
from stepset.unstructured import one_line, text

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, GONE, TOO_LARGE, TOO_MANY_REQUESTS = 401, 403, 404, 410, 413, 429
"""HTTP statuses that this package handles."""

Decode = Callable[[bytes | bytearray], Any]
_MESSAGE_LIMIT = 300
# The API server replies with a 5xx status and one of these messages if an object is too large for etcd
# (go.etcd.io/etcd v3.6 api/v3rpc/rpctypes/error.go) or for the server's etcd client (google.golang.org/grpc).
_SIZE = re.compile(r"etcdserver: request is too large|trying to send message larger than max")


@dataclass(frozen=True)
class Reply:
    """The API server's reply to one request.

    Args:
        status: the HTTP status. `parse_reply` raises an error for the statuses 401, 429 and 5xx. If an object is too
            large, the status is 413.
        body: the object, or a Status with the reason of a refusal. If the response is not a JSON object, `body` is
            empty.
        warnings: the texts of the Warning headers.
        date: the server's time in seconds since the epoch; None if the response states no time.
    """

    status: int
    body: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    date: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the server carried out the request."""
        return 200 <= self.status < 300

    @property
    def lacks_object(self) -> bool:
        """Whether the object does not exist although the server serves its kind.

        If the server does not serve the kind, the status of the reply is also 404, but the reply has no `details.name`.
        """
        details = self.body.get("details")
        return self.status == NOT_FOUND and isinstance(details, Mapping) and bool(details.get("name"))

    @property
    def message(self) -> str:
        """The message of the Status in one line of at most 300 characters; empty if the Status has no message."""
        return _message(self.body)


class UnreachableError(InfrastructureError):
    """The server did not answer, or failed. The same request may succeed later."""


class UnauthorizedError(InfrastructureError):
    """The server does not accept the credentials (HTTP 401)."""


class RefusedError(InfrastructureError):
    """The server refused a list, a watch or a log."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(f"the server refused with HTTP {reply.status}: {reply.message}")


def read_reply(
    answer: Answer,
    data: bytes | bytearray,
    warnings: Iterable[str] = (),
    decode: Decode = json.loads,
    date: str = "",
) -> Reply:
    """Converts the response to a request to a `Reply`.

    Args:
        answer: the request, the status and the headers.
        data: the body of the response.
        warnings: the Warning headers.
        decode: parses `data`, and raises ValueError if `data` is not a JSON object.
        date: the Date header.

    Raises:
        UnreachableError: the status is 429 or 5xx.
        UnauthorizedError: the server does not accept the credentials.
        InfrastructureError: the response does not come from a Kubernetes API server.
    """
    body = _decoded(data, decode)
    reply = _reply(answer, data, body, warnings, date)
    if not from_api_server(answer, data, body):
        raise other_server(answer, answer.describe(data, body))
    return reply


def parse_reply(answer: Answer, data: bytes | bytearray) -> Reply:
    """Converts a response, or a message of a stream, to a `Reply`, even if the sender is not an API server.

    Raises the errors of `read_reply`, except the error about a response that does not come from an API server.
    """
    return _reply(answer, data, _decoded(data, json.loads))


def _decoded(data: bytes | bytearray, decode: Decode) -> Mapping[str, Any] | None:
    try:
        body = decode(data)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, Mapping) else None


def _reply(
    answer: Answer,
    data: bytes | bytearray,
    found: Mapping[str, Any] | None,
    warnings: Iterable[str] = (),
    date: str = "",
) -> Reply:
    body = found or {}
    message = _message(body)
    if answer.status == UNAUTHORIZED:
        raise unauthorized(answer.server, "" if message else answer.describe(data, found))
    if answer.status >= 500 and _SIZE.search(message):
        return Reply(TOO_LARGE, body)
    if answer.status == TOO_MANY_REQUESTS or answer.status >= 500:
        reason = f"HTTP {answer.status}: {message}" if message else answer.describe(data, found)
        raise UnreachableError(
            f"server {answer.server}: failed with {reason}; try again, or contact the cluster's administrator"
        )
    return Reply(answer.status, body, tuple(map(_warning, warnings)), _seconds(date))


def other_server(answer: Answer, described: str) -> InfrastructureError:
    """Returns the error for a response that does not come from a Kubernetes API server."""
    return InfrastructureError(
        f"server {answer.server}: answered {answer.method} {answer.path} with {described}, not as a Kubernetes API"
        " server; check the server's address in the kubeconfig, and whether a proxy in between requires a login"
    )


def unauthorized(server: str, answered: str = "") -> UnauthorizedError:
    """Returns the error for credentials that a server does not accept.

    `answered` describes a response that does not come from a Kubernetes API server.
    """
    by = f" with {answered}" if answered else ""
    return UnauthorizedError(
        f"server {server}: refuses the credentials{by}; log in again, or check the user of the kubeconfig's context"
    )


def unreachable(server: str, error: BaseException) -> UnreachableError:
    """Returns the error for a server that cannot be reached. `error` is the original exception."""
    cause = getattr(error, "os_error", None)  # set if the connection could not be opened
    words = f"Failed to establish a new connection: {cause}" if cause is not None else str(error)
    reason = one_line(words or type(error).__name__, 200)
    return UnreachableError(
        f"server {server}: cannot be reached: {reason}; check the network, or the server's address in the kubeconfig"
    )


def _message(body: Mapping[str, Any]) -> str:
    return one_line(text(body, "message"), _MESSAGE_LIMIT)


def _seconds(date: str) -> float | None:
    """Converts an HTTP date to seconds since the epoch. Returns None if the date is invalid."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def _warning(header: str) -> str:
    """Returns the text of a Warning header, which has the form `299 - "text"` (RFC 7234 5.5)."""
    quoted = header.partition('"')[2].rpartition('"')[0]
    return quoted.replace('\\"', '"').replace("\\\\", "\\")
