"""Whether a server that says nothing is still there: asked when its watches have been quiet for a while.

Used by hearing.py. A watch may be quiet for minutes, and a connection may be dead long before anybody notices: the
kernel of a server that hangs, or of a proxy, goes on to confirm that it is there; a server that is being stopped takes
no new requests and keeps the old connections for a minute. So the run's workload is read, now and then, and where it is
not what the watch has told, everything that is open is asked for again.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepset.backends.kubernetes.client import RefusedError, UnreachableError
from stepset.backends.kubernetes.site import Site
from stepset.backends.kubernetes.watcher import Watcher
from stepset.errors import StepsetError

QUIET_FOR = 15.0
"""Seconds without a word from any watch after which the server is asked, and after which again."""
SILENT_FOR = 5.0
"""The same where it has not answered the last time."""
ANSWER_WITHIN = 10.0
"""Seconds a server has for that."""
GRACE = 3.0
"""Seconds a watch has to tell what a request has told already."""

_LOOK = 0.5

Manifest = Mapping[str, Any]


class Pulse:
    """Asks in a thread, from `start` to `stop`.

    Args:
        site: where the run is.
        workload: its object on top, as it was read.
        watchers: of the run's collections; the first one's has the workload.
        reconnect: is called, from the thread, when connections may be dead that look alive.
    """

    def __init__(
        self, site: Site, workload: Manifest, watchers: Sequence[Watcher], reconnect: Callable[[], None]
    ) -> None:
        self._connection, self._path = site.connection, site.path_of(workload)
        self._uid = str(workload["metadata"]["uid"])
        self._watchers, self._reconnect = watchers, reconnect
        self._stopping = threading.Event()
        self._silent_since: float | None = None
        self._thread = threading.Thread(target=self._beat, name=f"pulse of {self._path}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; returns at once."""
        self._stopping.set()

    def silent_for(self) -> float:
        """Seconds for which the server has not answered; 0 while it does."""
        since = self._silent_since
        return 0.0 if since is None else time.monotonic() - since

    def _beat(self) -> None:
        asked, spread = time.monotonic(), _spread()
        while not self._stopping.wait(_LOOK):
            heard = max(watcher.heard for watcher in self._watchers)
            if heard > asked:
                self._silent_since = None
            pause = SILENT_FOR if self._silent_since else QUIET_FOR
            if time.monotonic() - max(heard, asked) > pause * spread:
                asked, spread = time.monotonic(), _spread()
                self._ask(heard)

    def _ask(self, heard: float) -> None:
        try:
            version = self._version()
        except UnreachableError:
            self._silent_since = self._silent_since or heard
            return
        except StepsetError:  # the watchers decide what to make of a refusal
            return
        # Connections that were there while nobody answered may be dead although the server is back.
        if self._silent_since is not None or not self._agree(version):
            self._silent_since = None
            self._reconnect()

    def _version(self) -> str:
        """The workload's, by a request; empty where there is none."""
        try:
            with self._connection.stream(self._path, {}, ANSWER_WITHIN) as stream:
                body = b"".join(iter(stream.read, b""))
            found = json.loads(body)["metadata"]
        except RefusedError as refused:
            if refused.reply.status != 404:
                raise
            return ""
        except (ValueError, KeyError, TypeError) as error:
            raise UnreachableError("an answer that is none of Kubernetes") from error
        return str(found["resourceVersion"]) if found["uid"] == self._uid else ""

    def _agree(self, version: str) -> bool:
        """Whether the watch has told that version, or tells anything within a moment."""
        watcher, before = self._watchers[0], self._watchers[0].heard
        until = time.monotonic() + GRACE
        while watcher.version(self._uid) != version and watcher.heard <= before:
            if time.monotonic() > until or self._stopping.wait(_LOOK / 5):
                return False
        return True


def _spread() -> float:
    """Many runs that lost one server must not all come back at the same moment."""
    return random.uniform(0.8, 1.2)
