"""A state machine that lists and watches one collection. It converts responses into changes and into the next request.

The state machine uses no I/O. It follows the rules of
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes. The first requests get a
list of all objects in the collection. The next request watches the collection from the version of the list. Bookmarks
advance this version. After a response 410 (expired), the collection is listed again. Objects that are missing in the
new list were deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from stepset.unstructured import part, rows, text
from stepset.watch.retries import Retries

FIRST_PAGE, PAGE = 125, 1000
"""The number of objects in the first page of a list, and the maximum number in later pages."""
WATCH_SECONDS = 280
"""The number of seconds after which the server ends a watch. The client then requests a new watch."""

_FEWER = 8
"""The number by which `smaller_pages` divides the number of objects in a page."""
_EXPIRED = 410  # the HTTP status of an expired resource version
_LINE_LIMIT = 16 * 1024 * 1024
Object = Mapping[str, Any]


class Change(Struct, frozen=True):
    """A change to an object.

    Args:
        verb: the type of the watch event. For the objects of the first list, it is ADDED.
        object: the object with its apiVersion and kind. For a deletion, this is the last known state of the object.
        observed: whether a watch has reported the change. The value is False if the object is missing in a new list.
            Then the object was deleted, and the state of the object at that time is unknown.
    """

    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Object
    observed: bool = True


@dataclass(frozen=True, slots=True)
class ListWatchRequest:
    """A request to the server."""

    query: Mapping[str, str]  # parameters, without the selectors of the collection
    watch: bool  # if True, pass the response stream to `ListWatch.data`; if False, pass the body to `ListWatch.listed`


class ListWatch:
    """The objects of one collection that `wanted` accepts.

    Args:
        wanted: returns whether an object is kept.
        decode: decodes a line of a watch into a mapping with `type` and `object`, or raises ValueError.

    Attributes:
        answered: whether the response to the last request contained a page of a list, or an event other than an error.
        retries: counts the failures. The caller records failed requests, and watches that contain only an error. If
            many clients wait for the same server, the caller must add jitter to the delays.
    """

    def __init__(
        self, wanted: Callable[[Object], bool] = lambda _: True, decode: Callable[[bytes], Object] = json.loads
    ) -> None:
        self._wanted, self._decode = wanted, decode
        self._version = ""
        self._continue = ""
        self._limit, self._may_grow = FIRST_PAGE, True
        self._pages: dict[str, Object] = {}
        self._known: dict[str, Object] = {}
        self._rest = b""
        self.retries = Retries()
        self.answered = False

    @property
    def listed_once(self) -> bool:
        """Whether the collection has been listed."""
        return bool(self._version)

    @property
    def objects(self) -> list[Object]:
        """The last observed states of the objects."""
        return list(self._known.values())

    def get(self, uid: str) -> Object | None:
        """Returns the last observed state of an object, or None if the object does not exist."""
        return self._known.get(uid)

    def next_request(self) -> ListWatchRequest:
        """Returns the next request, and discards the incomplete line of the previous response."""
        self._rest = b""
        self.answered = False
        if not self._version:
            more = {"continue": self._continue} if self._continue else {}
            return ListWatchRequest({"limit": str(self._limit), **more}, watch=False)
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        return ListWatchRequest({**query, "timeoutSeconds": str(WATCH_SECONDS)}, watch=True)

    def listed(self, body: Object) -> list[Change]:
        """Processes a page of a list. After the last page, returns the new, changed and deleted objects.

        Raises:
            ValueError: the list contains no version. The next request then asks for the first page of the list again.
        """
        kind, version = str(body.get("kind", "")).removesuffix("List"), str(body.get("apiVersion", ""))
        for item in rows(body, "items"):
            # A list contains the kind and the apiVersion of its items. The items do not contain these two fields.
            each = {"kind": kind, "apiVersion": version, **item}
            if _uid(each) and self._wanted(each):
                self._pages[_uid(each)] = each
        about = part(body, "metadata")
        self._continue, listed = text(about, "continue"), text(about, "resourceVersion")
        if not self._continue and not listed:
            self.expired()
            raise ValueError("the list has no resourceVersion")
        self.retries.succeeded()
        self.answered = True
        if self._continue:
            return []
        self._version = listed
        found, before = self._pages, self._known
        self._pages, self._known = {}, dict(found)
        changes = [Change("DELETED", old, observed=False) for uid, old in before.items() if uid not in found]
        changes += [Change("ADDED", each) for uid, each in found.items() if uid not in before]
        kept = [(each, before[uid]) for uid, each in found.items() if uid in before]
        return changes + [Change("MODIFIED", each) for each, old in kept if version_of(each) != version_of(old)]

    def larger_pages(self, factor: int) -> None:
        """Multiplies the number of objects in later pages by `factor`. Does nothing after a call of `smaller_pages`."""
        if self._may_grow:
            self._limit = min(PAGE, self._limit * factor)

    def smaller_pages(self) -> bool:
        """Records that a page is too large to be read. Later requests, including a retry, ask for fewer objects.

        Returns False if the page already has only one object.
        """
        fewer, self._may_grow = self._limit > 1, False
        self._limit = max(1, self._limit // _FEWER)
        return fewer

    def data(self, chunk: bytes) -> list[Change]:
        """Processes the next bytes of a watch, and returns the changes. The bytes may end within a line.

        After a response 410, the next request is a list.
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._rest += chunk
            if len(self._rest) > _LINE_LIMIT:  # this is not the response of an API server
                self.expired()
            return []
        whole, self._rest = self._rest + chunk[:end], chunk[end:]
        changes: list[Change] = []
        for line in whole.splitlines():
            if not self._version:  # an error has occurred
                break
            if line and (change := self._line(line)) is not None:
                changes.append(change)
        return changes

    def expired(self) -> None:
        """Records that the server no longer has the version to continue from (410). The next request is a list."""
        self._version = self._continue = ""
        self._pages = {}

    def _line(self, line: bytes) -> Change | None:
        try:
            event = self._decode(line)
        except (ValueError, RecursionError):  # invalid or incomplete
            event = None
        each = event.get("object") if isinstance(event, Mapping) else None
        if event is None or not isinstance(each, Mapping):
            self.expired()
            return None
        verb = event.get("type")
        if verb == "ERROR":
            if each.get("code") == _EXPIRED:
                self.expired()
            return None
        self.retries.succeeded()
        self.answered = True
        self._version = version_of(each) or self._version
        if verb not in ("ADDED", "MODIFIED", "DELETED") or not _uid(each) or not self._wanted(each):
            return None
        if verb == "DELETED":
            self._known.pop(_uid(each), None)
        else:
            self._known[_uid(each)] = each
        return Change(verb, each)


def _uid(each: Object) -> str:
    return text(part(each, "metadata"), "uid")


def version_of(each: Object | None) -> str:
    """Returns the resource version of an object, or "" if there is no object."""
    return text(part(each or {}, "metadata"), "resourceVersion")
