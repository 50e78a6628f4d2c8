"""Recognizes responses that do not come from a Kubernetes API server, but for example from a login page or a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from stepset.unstructured import one_line, text

_LIMIT = 100
"""The maximum number of characters of each part of a response that a message shows."""
_ON_EVERY_CLUSTER = ("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/version")
"""Paths that every API server serves."""
_NOT_SERVED = b"404 page not found"
"""The body of the response if an API server does not serve the group or the version of a path (k8s.io/apiserver v0.36
pkg/server/mux/pathrecorder.go)."""


@dataclass(frozen=True)
class Answer:
    """The parts of a response that precede its body, and the request.

    Args:
        server: the server's address.
        status: the HTTP status.
        method: the method of the request.
        path: the path of the request, without parameters.
        kind: the kind of the object that the request creates; "" if the request creates no object.
        headers: the headers of the response. The keys are not case-sensitive.
    """

    server: str
    status: int
    method: str = ""
    path: str = ""
    kind: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def media_type(self) -> str:
        """The content type without parameters; "" if the response states no content type."""
        return one_line(self.headers.get("Content-Type", "").partition(";")[0].lower(), _LIMIT)

    def describe(self, data: bytes | bytearray | None = None, body: Mapping[str, Any] | None = None) -> str:
        """Returns the status, and the type of the body.

        `data` is the body; None if the body is not read. `body` is the JSON object in `data`; None if `data` is not a
        JSON object.
        """
        parts = [self.media_type] if self.media_type else []
        if location := self.headers.get("Location"):
            parts.append(f"redirect to {_without_secrets(location)}")
        if data is not None and not data:
            parts.append("empty body")
        elif body is not None:
            parts.append(f"kind {one_line(text(body, 'kind'), _LIMIT)!r}" if "kind" in body else "no kind")
        elif data and self.media_type == "text/plain":
            parts.append(repr(one_line(bytes(data[: 4 * _LIMIT]).decode(errors="replace"), _LIMIT)))
        return f"HTTP {self.status} ({', '.join(parts)})" if parts else f"HTTP {self.status}"


def from_api_server(answer: Answer, data: bytes | bytearray, body: Mapping[str, Any] | None) -> bool:
    """Returns whether a response can be the response of an API server.

    `body` is the JSON object in `data`; None if `data` is not a JSON object.
    """
    if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # a proxy may limit the size of a request
        return True
    if 200 <= answer.status < 300:
        return body is not None and _is_object(answer, body)
    if body is not None and body.get("kind") == "Status":
        return True
    known = any(answer.path == each or answer.path.startswith(f"{each}/") for each in _ON_EVERY_CLUSTER)
    return answer.status == HTTPStatus.NOT_FOUND and not known and bytes(data[:_LIMIT]).strip() == _NOT_SERVED


def _is_object(answer: Answer, body: Mapping[str, Any]) -> bool:
    kind = text(body, "kind")
    if answer.method == "GET" and _is_collection(answer.path):
        return kind.endswith("List")
    if answer.kind:
        return kind == answer.kind
    return bool(kind) or (answer.path == "/version" and "gitVersion" in body)


def _is_collection(path: str) -> bool:
    """Returns whether the path of an API request is the path of a collection, not of an object.

    >>> _is_collection("/api/v1/namespaces/ns/pods"), _is_collection("/api/v1/namespaces/ns/pods/name")
    (True, False)
    """
    prefix, *rest = path.strip("/").split("/")
    names = rest[1:] if prefix == "api" else rest[2:]
    return prefix in ("api", "apis") and (len(names) == 1 or (len(names) == 3 and names[0] == "namespaces"))


def _without_secrets(location: str) -> str:
    """Returns an address without its user, parameters and fragment, which may contain secrets."""
    try:
        found = urlsplit(location)
    except ValueError:
        return "an invalid address"
    host = found.netloc.rpartition("@")[2]
    return one_line(f"{found.scheme}://{host}{found.path}" if host else found.path, _LIMIT)
