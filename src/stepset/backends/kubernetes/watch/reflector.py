"""`Reflector`, which keeps the current objects of one collection in memory.

A reflector sends list requests and watch requests. The state machine `stepset.watch.list_watch.ListWatch` determines
the requests and the pauses between the requests. The state machine handles bookmarks, expired versions (410),
resumed watches and backoff.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from stepset.backends.kubernetes.api.client import Client
from stepset.backends.kubernetes.api.refusal_grace import RefusalGrace
from stepset.backends.kubernetes.api.replies import FORBIDDEN, GONE, NOT_FOUND, RefusedError, Reply, UnreachableError
from stepset.backends.kubernetes.watch.pages import read_page
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import InfrastructureError, StepsetError
from stepset.watch.list_watch import Change, ListWatch
from stepset.watch.retries import LONGEST_DELAY, Retries

QUIET = 90.0
"""Seconds without data after which a watch is treated as broken. A server sends a bookmark about once a minute."""

_IDLE_DELAY = 1.0
"""If a watch has ended without data, the watch is opened again after this number of seconds."""
_REFUSED_DELAY = 2.0
"""The longest pause in seconds before a refused request is sent again.

The pause is short, because the server may soon allow the request."""

_log = logging.getLogger(__name__)

Changed = Callable[[Sequence[Change], bool], None]
"""Receives changes, and whether they complete a list of the whole collection."""


class Reflector:
    """Follows one collection, and calls `changed` in the event loop after each change.

    The first call of `changed` contains all objects. If the collection is empty, the first call contains no objects.
    All times are times of the event loop's clock. An optional collection is a collection whose `needed` is False.

    Attributes:
        listed: whether all objects are known. Also True if an optional collection cannot be read for lack of
            permission.
        refusal: the reply of the server if the account has no permission to read an optional collection.
        error: the reason why a needed collection cannot be followed; None if the collection can be followed.
        problem: the last unexpected error of the watch, in one line; empty if there was no unexpected error.
        last_received: the time at which the server last sent data.
        silent_since: the time since which the server has not answered; None if the server answers.
    """

    def __init__(self, client: Client, collection: Collection, changed: Changed) -> None:
        self._client, self._collection, self._changed = client, collection, changed
        self._list_watch = ListWatch(collection.wanted)
        self._grace = RefusalGrace()
        self._request = anyio.CancelScope()
        self.silent_since: float | None = None
        self._opened = False
        self._retries = Retries()
        self._undelivered: Sequence[Change] = ()
        self.problem = ""
        self.listed = False
        self.refusal: Reply | None = None
        self.error: StepsetError | None = None
        self.last_received = asyncio.get_running_loop().time()

    @property
    def objects(self) -> list[Mapping[str, Any]]:
        """The last known state of the objects."""
        return self._list_watch.objects

    def get(self, uid: str) -> Mapping[str, Any] | None:
        """Returns the last known state of an object, or None if the object does not exist."""
        return self._list_watch.get(uid)

    def reconnect(self) -> None:
        """Opens the connection again. If the reflector is pausing, this method ends the pause."""
        self._request.cancel()

    def reset(self) -> None:
        """Resets a reflector that has given up. Then `run` can be called again.

        The next call of `run` reports the changes since the reflector gave up.
        """
        self._list_watch.expired()
        self.listed, self.error, self.refusal = False, None, None
        self._retries.succeeded()

    async def run(self) -> None:
        """Follows the collection until this method is cancelled or the reflector gives up.

        The reflector gives up if the server permanently refuses the requests, or if the last retry after an unexpected
        error fails. Then `error` is the reason.
        """
        while True:
            try:
                await self._follow()
                return
            except Exception as error:  # noqa: BLE001  # after an internal error, followers must not wait forever
                pause = self._retries.failed()
                _log.warning("the watch of %s failed", self._collection.path, exc_info=not self.problem)
                self.problem = f"the watch of {self._collection.path} failed unexpectedly: {str(repr(error))[:200]}"
                if self._retries.exhausted:
                    self._give_up(InfrastructureError(self.problem))
                    return
            self._list_watch.expired()
            self._wake()
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            with anyio.CancelScope() as self._request:
                longest = LONGEST_DELAY
                try:
                    succeeded = await self._send_request()
                    # After a 410, `listed_once` is False. A 410 counts as an answer. Otherwise the server
                    # would be regarded as silent until it answers the next list request, which may take long.
                    answered = succeeded or not self._list_watch.listed_once
                except UnreachableError:
                    answered = succeeded = False
                    self._grace.unreachable()
                except StepsetError as error:
                    answered, succeeded, longest = self._expired(error), False, _REFUSED_DELAY
                    if not answered and not self._grace.covers(asyncio.get_running_loop().time()):
                        self._give_up(error)
                        return
                if answered:
                    self.silent_since = None
                    self._grace.granted()
                else:
                    # `_receive` resets `silent_since` when a response begins. If a response has begun, the server has
                    # been silent since the end of this response. If no response has begun, the server has been silent
                    # since the start of this request.
                    now = asyncio.get_running_loop().time()
                    self.silent_since = self.silent_since or (now if self._opened else began)
                if not succeeded:
                    # The pause is random. Otherwise all processes would reconnect to a new server at the same time.
                    await asyncio.sleep(min(longest, self._list_watch.retries.failed()) * random.uniform(0.7, 1.3))
            if self._request.cancelled_caught:
                self._list_watch.retries.succeeded()

    def _expired(self, error: StepsetError) -> bool:
        """Returns whether the resource version of the watch request is too old for the server (410).

        If the version is too old, the next request is a list request.
        """
        expired = isinstance(error, RefusedError) and error.reply.status == GONE
        if expired:
            self._list_watch.expired()
        return expired

    async def _send_request(self) -> bool:
        """Sends one request. Returns whether the request was successful. A watch without events is successful."""
        request, collection = self._list_watch.next_request(), self._collection
        self._opened = False
        query = {**collection.selectors, **request.query}
        if request.watch:
            if await self._watch(query):
                return self._list_watch.answered
            # The server has accepted the watch, but has sent no data. A proxy may have closed the idle connection.
            await asyncio.sleep(_IDLE_DELAY)
            return True
        changes = await read_page(self._client, collection, self._list_watch, self._receive)
        if self._list_watch.listed_once:
            self.listed = True
            self._deliver(changes, listed=True)
        return True

    async def _watch(self, query: dict[str, str]) -> bool:
        """Follows a watch until the response ends. Returns whether the watch has received data."""
        received = False
        async with self._client.stream(self._collection.path, query, QUIET) as chunks:
            self._receive()
            async for chunk in chunks:
                received = True
                self._receive()
                if changes := self._list_watch.data(chunk):
                    self._deliver(changes)
                if self.problem:
                    self._retries.succeeded()
                    self.problem = ""
                if not self._list_watch.listed_once:
                    break
        return received

    def _receive(self) -> None:
        """Records that the server has sent a part of a response."""
        self._opened, self.silent_since, self.last_received = True, None, asyncio.get_running_loop().time()

    def _deliver(self, changes: Sequence[Change], *, listed: bool = False) -> None:
        """Calls `changed` with the changes. If an earlier call of `changed` failed, repeats the changes of that call.

        The changes must be repeated, because the next list does not report them again.
        """
        self._undelivered = [*self._undelivered, *changes]
        self._changed(self._undelivered, listed)
        self._undelivered = []

    def _give_up(self, error: StepsetError) -> None:
        refused = isinstance(error, RefusedError) and error.reply.status in (FORBIDDEN, NOT_FOUND)
        if isinstance(error, RefusedError) and refused and not self._collection.needed:
            self.refusal, self.listed = error.reply, True
        else:
            self.error = error
        self._wake()

    def _wake(self) -> None:
        """Wakes the followers. The followers then read the attributes of this reflector."""
        try:
            self._changed((), False)
        except Exception:  # noqa: BLE001  # the same internal error may have ended the watch
            _log.warning("the followers of %s could not be notified", self._collection.path, exc_info=True)
