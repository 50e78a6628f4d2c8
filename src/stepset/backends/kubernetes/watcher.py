"""A collection of objects followed in a thread: the synchronous carrier of `watch.feed.Feed`.

Used by `follow.py`. The reader must be quick: while it works, the watch waits.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stepset.backends.kubernetes.client import Connection, RefusedError, Reply, UnreachableError
from stepset.backends.kubernetes.refusals import Forbearance
from stepset.backends.kubernetes.stream import Stream
from stepset.errors import StepsetError
from stepset.watch.cluster.change import Change
from stepset.watch.feed import Feed, Object

QUIET = 90.0
"""Seconds after which a silent watch is taken for dead: a server sends a bookmark about once a minute."""

_GONE = 410


@dataclass(frozen=True)
class Collection:
    """Objects that concern a run.

    Args:
        path: where they are.
        selectors: labelSelector, fieldSelector.
        wanted: whether one of those concerns the run after all.
        needed: without them nothing can be said; others are left out where the server has or shows none.
        trim: what is kept of each.
    """

    path: str
    selectors: Mapping[str, str] = field(default_factory=dict)
    wanted: Callable[[Object], bool] = lambda _: True
    needed: bool = True
    trim: Callable[[Object], Object] = lambda each: each


class Watcher:
    """Follows one collection until it is stopped.

    Args:
        connection: the server.
        collection: what is followed.
        changed: is given what changed, from the watcher's thread; the first time all there is, even if that is nothing.
        failed: is told, from the same thread, that it cannot go on.

    Attributes:
        refused: the server's refusal, where the collection is not needed and done without.
    """

    def __init__(
        self,
        connection: Connection,
        collection: Collection,
        changed: Callable[[list[Change]], None],
        failed: Callable[[StepsetError], None],
    ) -> None:
        self._connection, self._collection = connection, collection
        self._changed, self._failed = changed, failed
        self._feed = Feed(collection.wanted, collection.trim)
        self._stopping, self._awake = threading.Event(), threading.Event()
        self.refused: Reply | None = None
        self._stream: Stream | None = None
        self._silent_since: float | None = None
        self._forbearance = Forbearance()
        self._opened = False
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._follow, name=f"watch {collection.path}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; returns at once."""
        self._stopping.set()
        self.reconnect()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def silent_for(self) -> float:
        """Seconds for which the server has not answered; 0 while it does."""
        since = self._silent_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def heard(self) -> float:
        """When the server last said anything, on the clock of `time.monotonic`."""
        return self._heard

    def version(self, uid: str) -> str:
        """The resource version of an object, as last told; empty where it is not there."""
        return self._feed.version(uid)

    def reconnect(self) -> None:
        """Gives the present connection up, or the wait for the next: somebody knows better."""
        self._awake.set()
        if (stream := self._stream) is not None:
            stream.close()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                answered = self._ask()
            except UnreachableError:
                answered = False
                self._forbearance.unreachable()
            except StepsetError as error:
                if not self._may_pass(error):
                    self._give_up(error)
                    return
                answered = False
            if answered:
                self._silent_since = None
                self._forbearance.granted()
            else:
                # A watch that was open has reset it; what fails now was silent since it was asked.
                self._silent_since = self._silent_since or (time.monotonic() if self._opened else began)
                # Many runs that lost one server must not all come back at the same moment.
                if self._awake.wait(self._feed.failed() * random.uniform(0.7, 1.3)):
                    self._awake.clear()
                    self._feed.hopeful()

    def _may_pass(self, error: StepsetError) -> bool:
        """Whether a refusal may be over soon."""
        if isinstance(error, RefusedError) and error.reply.status == _GONE:
            self._feed.expired()
            return True
        return self._forbearance.bears(time.monotonic())

    def _ask(self) -> bool:
        """One request; whether something was answered."""
        ask = self._feed.ask()
        self._opened = False
        query = {**self._collection.selectors, **ask.query}
        if ask.watch:
            self._watch(query)
            return self._feed.answered
        reply = self._connection.get(self._collection.path, query)
        if reply.status == _GONE:  # of a continued list
            self._feed.expired()
            return False
        if not reply.accepted:
            raise RefusedError(reply)
        self._heard = time.monotonic()
        changes = self._feed.listed(reply.body)
        if self._feed.listed_once and not self._stopping.is_set():
            self._changed(changes)
        return True

    def _watch(self, query: Mapping[str, str]) -> None:
        self._stream = stream = self._connection.stream(self._collection.path, query, QUIET)
        try:
            if self._stopping.is_set():
                return
            with stream:
                self._opened, self._silent_since = True, None
                self._heard = time.monotonic()
                while not self._stopping.is_set() and self._feed.listed_once and (chunk := stream.read()):
                    self._heard = time.monotonic()
                    if changes := self._feed.data(chunk):
                        self._changed(changes)
        finally:
            self._stream = None

    def _give_up(self, error: StepsetError) -> None:
        if isinstance(error, RefusedError) and error.reply.status in (403, 404) and not self._collection.needed:
            self.refused = error.reply
            self._changed([])
        else:
            self._failed(error)
