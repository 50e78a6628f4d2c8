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
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import InfrastructureError, StepsetError
from stepset.watch.cluster.change import Change
from stepset.watch.cluster.decoding import decode_event, decode_list
from stepset.watch.list_watch import LONGEST_DELAY, ListWatch

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
        listed: all objects of the collection are known, or they are not needed and the account may not read them.
        refusal: the server's refusal, if the account may not read a collection that is not needed.
        error: the reason why a needed collection cannot be followed.
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
        self.listed = False
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
        """Prepares a reflector that has given up to run again; it reports the changes in the meantime."""
        self._list_watch.expired()
        self.listed, self.error, self.refusal = False, None, None

    async def run(self) -> None:
        """Follows the collection until it is cancelled or the server refuses it for good; `error` states the reason."""
        try:
            await self._follow()
        except Exception as error:  # noqa: BLE001  # a defect here must not leave followers waiting
            _log.exception("the watch of %s failed", self._collection.path)
            self._give_up(InfrastructureError(f"the watch of {self._collection.path} failed: {error!r}"))

    async def _follow(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            with anyio.CancelScope() as self._request:
                longest = LONGEST_DELAY
                try:
                    answered = await self._send_request()
                except UnreachableError:
                    answered = False
                    self._grace.unreachable()
                except StepsetError as error:
                    if not self._may_be_temporary(error):
                        self._give_up(error)
                        return
                    answered, longest = False, _REFUSED_DELAY
                if answered:
                    self.silent_since = None
                    self._grace.granted()
                else:
                    # An open watch has reset `silent_since`; otherwise the silence began with this request.
                    now = asyncio.get_running_loop().time()
                    self.silent_since = self.silent_since or (now if self._opened else began)
                    # Many processes that lost one server must not reconnect at the same moment.
                    await asyncio.sleep(min(longest, self._list_watch.failed()) * random.uniform(0.7, 1.3))
            if self._request.cancelled_caught:
                self._list_watch.recovered()

    def _may_be_temporary(self, error: StepsetError) -> bool:
        """Whether a refusal may be temporary."""
        if isinstance(error, RefusedError) and error.reply.status == GONE:
            self._list_watch.expired()
            return True
        return self._grace.covers(asyncio.get_running_loop().time())

    async def _send_request(self) -> bool:
        """Sends one request; returns whether the server answered it."""
        request, collection = self._list_watch.next_request(), self._collection
        self._opened = False
        query = {**collection.selectors, **request.query}
        if request.watch:
            if await self._watch(query):
                return self._list_watch.answered
            # The server has answered; a proxy may have closed the idle watch.
            await asyncio.sleep(_IDLE_DELAY)
            return True
        reply = await self._client.get(collection.path, query, decode_list)
        if not reply.accepted:
            raise RefusedError(reply)
        self.last_received = asyncio.get_running_loop().time()
        await asyncio.sleep(0)  # decoding took a while: let other tasks run
        changes = self._list_watch.listed(reply.body)
        if self._list_watch.listed_once:
            self.listed = True
            self._changed(changes)
        return True

    async def _watch(self, query: dict[str, str]) -> bool:
        """Follows a watch to its end; returns whether it received data."""
        received, clock = False, asyncio.get_running_loop().time
        async with self._client.stream(self._collection.path, query, QUIET) as chunks:
            self._opened, self.silent_since, self.last_received = True, None, clock()
            async for chunk in chunks:
                received, self.last_received = True, clock()
                if changes := self._list_watch.data(chunk):
                    self._changed(changes)
                if not self._list_watch.listed_once:
                    break
        return received

    def _give_up(self, error: StepsetError) -> None:
        refused = isinstance(error, RefusedError) and error.reply.status in (FORBIDDEN, NOT_FOUND)
        if isinstance(error, RefusedError) and refused and not self._collection.needed:
            self.refusal, self.listed = error.reply, True
        else:
            self.error = error
        self._changed(())
