"""The objects of an API server in memory: they have uids and versions, and requests have preconditions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

CREATED = "2026-01-01T12:00:00Z"


class StoredObjects:
    """Objects by path. `answer` carries out a request, as `ApiServer` requires.

    Args:
        body: returns the body of the request that is answered.
    """

    def __init__(self, body: Callable[[], Any]) -> None:
        self.by_path: dict[str, dict[str, Any]] = {}
        self._body = body
        self._count = itertools.count(1)

    def of_kind(self, plural: str) -> list[dict[str, Any]]:
        """The objects of one kind in the only namespace."""
        return [each for path, each in self.by_path.items() if path.split("/")[-2] == plural]

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Carries out a request. Requests that store no object, such as access reviews, are refused."""
        if method == "POST" and path.endswith("reviews"):
            return _refused(404, path)
        if method == "POST":
            return self._create(path)
        found = self.by_path.get(path)
        if found is None:
            return self._list(path, query) if "/" not in path.partition("/ns/")[2] else _refused(404, path)
        if method == "GET":
            return 200, found
        body = self._body()
        about = found["metadata"]
        wanted = body.get("preconditions", {}) if method == "DELETE" else body["metadata"]
        if any(wanted.get(name) not in (None, about[name]) for name in ("uid", "resourceVersion")):
            return _refused(409, path)
        if method == "DELETE":
            del self.by_path[path]
            return 200, found
        self.by_path[path] = _merged(found, body)
        self.by_path[path]["metadata"]["resourceVersion"] = str(next(self._count))
        return 200, self.by_path[path]

    def _create(self, path: str) -> tuple[int, Any]:
        body = self._body()
        name = f"{path}/{body['metadata']['name']}"
        if name in self.by_path:
            return 409, {"kind": "Status", "reason": "AlreadyExists", "message": "exists", "code": 409}
        made = {"uid": f"uid-{next(self._count)}", "resourceVersion": "0", "creationTimestamp": CREATED}
        self.by_path[name] = {**body, "metadata": {**body["metadata"], **made}}
        return 201, self.by_path[name]

    def _list(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        name, equals, value = query.get("labelSelector", "").partition("=")

        def selected(labels: dict[str, str]) -> bool:
            return not name or (labels.get(name) == value if equals else name in labels)

        items = [
            each
            for key, each in self.by_path.items()
            if key.rpartition("/")[0] == path and selected(each["metadata"].get("labels", {}))
        ]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


def _refused(status: int, path: str) -> tuple[int, Any]:
    return status, {"kind": "Status", "message": "refused", "code": status, "details": {"name": path.split("/")[-1]}}


def _merged(old: Any, new: Any) -> Any:
    """RFC 7396."""
    if not isinstance(new, Mapping):
        return new
    merged = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
