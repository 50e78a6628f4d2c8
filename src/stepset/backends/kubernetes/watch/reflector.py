"""A reflector: the objects of one collection, kept current by list and watch.

It sends the requests that the state machine `stepset.watch.list_watch.ListWatch` determines: list, watch,
bookmarks, 410, resume and backoff.
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
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.decoding import decode_event
from stepset.watch.list_watch import ListWatch
from stepset.watch.retries import LONGEST_DELAY, Retries

QUIET = 90.0
"""Seconds after which a silent watch counts as broken: a server sends a bookmark about once a minute."""

_IDLE_DELAY = 1.0
"""Seconds before a watch that received nothing is opened again."""
_REFUSED_DELAY = 2.0
"""The longest pause in seconds before a refused request is sent again: the server may allow it soon."""

_log = logging.getLogger(__name__)

Changed = Callable[[Sequence[Change]], None]


class Reflector:
    """Follows one collection; calls `changed` in the event loop, first with all objects, even if there are none.

    Attributes:
        listed: whether all objects are known, or the collection is not needed and the account may not read it.
        lists: how often the whole collection was listed.
        refusal: the server's refusal, if the account may not read a collection that is not needed.
        error: the reason why a needed collection cannot be followed.
        problem: the unexpected error after which the watch is retried, in one line; empty if there is none.
        last_received: when the server last sent data, on the event loop's clock.
        silent_since: the time since which the server has not answered, on that clock; None while it does.
    """

    def __init__(self, client: Client, collection: Collection, changed: Changed) -> None:
        self._client, self._collection, self._changed = client, collection, changed
        self._list_watch = ListWatch(collection.wanted, decode_event)
        self._grace = RefusalGrace()
        self._request = anyio.CancelScope()
        self.silent_since: float | None = None
        self._opened = False
        self._retries = Retries()
        self._undelivered: Sequence[Change] = ()
        self.problem = ""
        self.listed, self.lists = False, 0
        self.refusal: Reply | None = None
        self.error: StepsetError | None = None
        self.last_received = asyncio.get_running_loop().time()

    @property
    def objects(self) -> list[Mapping[str, Any]]:
        """The objects as last seen."""
        return self._list_watch.objects

    def version(self, uid: str) -> str:
        """Returns the resource version of an object as last seen; empty if it does not exist."""
        return self._list_watch.version(uid)

    def reconnect(self) -> None:
        """Closes the current connection, or ends the pause before the next one."""
        self._request.cancel()

    def reset(self) -> None:
        """Resets a reflector that gave up; `run` can then be called again, and reports the changes since it gave up."""
        self._list_watch.expired()
        self.listed, self.error, self.refusal = False, None, None
        self._retries.succeeded()

    async def run(self) -> None:
        """Follows the collection until it is cancelled or the server refuses it for good; `error` states the reason."""
        while True:
            try:
                await self._follow()
                return
            except Exception as error:  # noqa: BLE001  # a defect here must not leave followers waiting
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
                    # After a 410, `listed_once` is False. The 410 counts as an answer, because the list that follows
                    # may take long.
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
                    # `_receive` resets `silent_since` when a response begins, so the silence begins with the end of the
                    # response or, if there was none, with this request.
                    now = asyncio.get_running_loop().time()
                    self.silent_since = self.silent_since or (now if self._opened else began)
                if not succeeded:
                    # Many processes that lost one server must not reconnect at the same moment.
                    await asyncio.sleep(min(longest, self._list_watch.failed()) * random.uniform(0.7, 1.3))
            if self._request.cancelled_caught:
                self._list_watch.recovered()

    def _expired(self, error: StepsetError) -> bool:
        """Whether the server no longer has the version to continue from (410); the next request is then a list."""
        expired = isinstance(error, RefusedError) and error.reply.status == GONE
        if expired:
            self._list_watch.expired()
        return expired

    async def _send_request(self) -> bool:
        """Sends one request; returns whether the server answered it with objects, or with nothing to report."""
        request, collection = self._list_watch.next_request(), self._collection
        self._opened = False
        query = {**collection.selectors, **request.query}
        if request.watch:
            if await self._watch(query):
                return self._list_watch.answered
            # The server has answered; a proxy may have closed the idle watch.
            await asyncio.sleep(_IDLE_DELAY)
            return True
        changes = await read_page(self._client, collection, self._list_watch, self._receive)
        if self._list_watch.listed_once:
            self.listed, self.lists = True, self.lists + 1
            self._deliver(changes)
        return True

    async def _watch(self, query: dict[str, str]) -> bool:
        """Follows a watch to its end; returns whether it received data."""
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

    def _deliver(self, changes: Sequence[Change]) -> None:
        """Calls `changed`, also with the changes of an earlier call that failed: no list would report them again."""
        self._undelivered = [*self._undelivered, *changes]
        self._changed(self._undelivered)
        self._undelivered = []

    def _give_up(self, error: StepsetError) -> None:
        refused = isinstance(error, RefusedError) and error.reply.status in (FORBIDDEN, NOT_FOUND)
        if isinstance(error, RefusedError) and refused and not self._collection.needed:
            self.refusal, self.listed = error.reply, True
        else:
            self.error = error
        self._wake()

    def _wake(self) -> None:
        """Wakes the followers, which read the attributes."""
        try:
            self._changed(())
        except Exception:  # noqa: BLE001  # the same defect may have ended the watch
            _log.warning("the followers of %s could not be notified", self._collection.path, exc_info=True)
