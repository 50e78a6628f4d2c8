"""The API server's replies, and the errors that requests raise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

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
        status: the HTTP status. `read_reply` raises an error for the statuses 401, 429 and 5xx. If an object is too
            large, the status is 413.
        body: the object, or a Status with the reason of a refusal. If the response is not a JSON object, `body` is
            empty.
        warnings: the texts of the Warning headers.
        date: the server's time in seconds since the epoch; None if the response does not state it.
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
    server: str,
    status: int,
    data: bytes | bytearray,
    warnings: Iterable[str] = (),
    decode: Decode = json.loads,
    date: str = "",
) -> Reply:
    """Converts a response to a `Reply`.

    Args:
        server: the server's address, for error messages.
        status: the HTTP status.
        data: the body of the response.
        warnings: the Warning headers.
        decode: parses `data`. It raises ValueError if `data` is not a JSON object.
        date: the Date header.

    Raises:
        UnreachableError: the status is 429 or 5xx.
        UnauthorizedError: the server does not accept the credentials.
        InfrastructureError: the server is not a Kubernetes API server.
    """
    try:
        body = decode(data or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, Mapping):
        if status < 300:
            raise InfrastructureError(
                f"server {server}: is not a Kubernetes API server; check the server's address in the kubeconfig"
            )
        body = {}
    message = _message(body)
    if status == UNAUTHORIZED:
        raise unauthorized(server)
    if status >= 500 and _SIZE.search(message):
        return Reply(TOO_LARGE, body)
    if status == TOO_MANY_REQUESTS or status >= 500:
        raise UnreachableError(
            f"server {server}: failed with HTTP {status}{f': {message}' if message else ''}; try again, or contact the"
            " cluster's administrator"
        )
    return Reply(status, body, tuple(map(_warning, warnings)), _seconds(date))


def unauthorized(server: str) -> UnauthorizedError:
    """Returns the error for credentials that a server does not accept."""
    return UnauthorizedError(
        f"server {server}: refuses the credentials; log in again, or check the user of the kubeconfig's context"
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
