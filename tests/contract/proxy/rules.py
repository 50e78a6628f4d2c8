"""The faults that a gate can inject, and the kinds of requests to which they apply, as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("list", "get", "watch", "log", "write", "other")


@dataclass(frozen=True)
class Rule:
    """One fault that lasts until it is removed.

    Args:
        do: what happens:
            `refuse` answers requests with an error (`status`: 401, 403, ...);
            `hang` answers no request and stops open streams;
            `quiet` keeps streams open and sends nothing on them;
            `close` ends each stream cleanly after `seconds`;
            `expired` answers the next `count` watches with 410, alternately as an event and as a status;
            `bookmarks` withholds events and sends a bookmark every second;
            `unparsable` adds objects that are not Kubernetes objects to lists and watches;
            `cut` aborts each stream after a random number of bytes, `bytes` on average, at most `count` times;
            `slow` lets a stream pass `bytes` per second;
            `long_line` adds a line of `bytes` to the first log stream;
            `no_previous` answers that the log of a container's previous start does not exist (`status`: 400, as if the
            kubelet had removed the container, or 200, as if it had removed its log file).
        on: the kinds of requests to which the fault applies; for `expired` also with a resource ("watch pods").
        status: the HTTP status.
        seconds, bytes, count: see above.
    """

    do: str
    on: tuple[str, ...] = KINDS
    status: int = 0
    seconds: float = 0.0
    bytes: int = 0
    count: int = 1 << 30

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """Parses a rule that the control channel received."""
        return cls(**{**data, "on": tuple(data.get("on", KINDS))})


def kind_of(method: str, path: str, query: Mapping[str, str]) -> str:
    """The kind of a request.

    >>> kind_of("GET", "/api/v1/namespaces/a/pods", {"watch": "true"})
    'watch'
    >>> kind_of("GET", "/api/v1/namespaces/a/pods/b/log", {"follow": "true"})
    'log'
    >>> kind_of("GET", "/apis/batch/v1/namespaces/a/jobs", {})
    'list'
    >>> kind_of("GET", "/apis/batch/v1/namespaces/a/jobs/b", {})
    'get'
    >>> kind_of("GET", "/version", {})
    'other'
    """
    if method != "GET":
        return "write"
    parts = path.strip("/").split("/")
    if "namespaces" not in parts:
        return "other"
    below = parts[parts.index("namespaces") + 2 :]
    if len(below) == 3 and below[2] == "log":
        return "log"
    if len(below) == 1:
        return "watch" if query.get("watch") in ("true", "1") else "list"
    return "get"


def refusal(status: int, method: str, path: str) -> dict[str, Any]:
    """The Status object with which an API server refuses a request.

    Args:
        status: 401, 403, or another error.
        method, path: the request's; the message of a 403 names the resource, as the authorizer's does.
    """
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 503: "ServiceUnavailable"}
    message = reasons.get(status, "InternalError")
    if status == 403:
        parts = path.strip("/").split("/")
        resource = parts[parts.index("namespaces") + 2] if "namespaces" in parts else parts[-1]
        verb = {"GET": "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method, "get")
        message = (
            f'{resource} is forbidden: User "system:serviceaccount:test:submitter" cannot {verb} resource'
            f' "{resource}" in API group "" in the namespace "test"'
        )
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reasons.get(status, "InternalError"),
        "code": status,
    }
