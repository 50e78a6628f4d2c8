"""Reads one pod's log, each line once, from its container's start to its end, across dropped connections and restarts.

A response may end early (stepset.watch.log_cursor): a log is complete only after a complete response to a request that
was sent after the container's end.

The caller reports changes of the pod by `see`, possibly late: the server may return the log of a restarted container
before `see` reports the restart. Such a response does not begin with the last line that was read. The reader then waits
for the report. If there is one, the reader discards the response, and first reads the rest of the previous container's
log. If there is none, the log was rotated.

A slow consumer slows down the reader and the server, but not the container: its runtime writes the log to a file.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from copy import copy
from typing import Any

import anyio

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import lacks_permission
from stepset.backends.kubernetes.api.refusal_grace import RefusalGrace
from stepset.backends.kubernetes.api.replies import NOT_FOUND, RefusedError, Reply, UnreachableError
from stepset.backends.kubernetes.api.resources import PODS
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.errors import InfrastructureError, StepsetError
from stepset.unstructured import one_line
from stepset.watch.lines import Batch, Splitter
from stepset.watch.log_cursor import LogCursor
from stepset.watch.plain_lines import PlainSplitter

READ_TIMEOUT = 120.0
"""Seconds without a byte after which a log is requested again: a silent server may be down. TCP keepalive detects that
sooner, but not through every proxy."""
ENDED_READ_TIMEOUT = 0.2
"""Seconds without a byte after which the log of a container that has ended is requested again."""
DELETED_READ_TIMEOUT = 10.0
"""Seconds without a byte after which the log of a deleted pod is requested again, in case the connection is dead. Long,
because only the open response contains the last lines."""
SNAPSHOT_READ_TIMEOUT = 15.0
"""Like READ_TIMEOUT, for a log that is not followed."""
RESTART_REPORT_TIMEOUT = 5.0
"""Seconds to wait for the report of a restart, if a response seems to be the log of a restarted container."""
NOT_YET = (204, 400)
"""HTTP statuses if the pod has no node, if its kubelet does not know it, or if its container has not started."""

_FIRST_PAUSE = 0.2
"""Seconds before a log whose connection was lost is requested again."""
_ENDED_PAUSE = 1.0
"""Like _FIRST_PAUSE, if the log seems to have ended: the container's end is probably reported in the meantime."""
_LONGEST_PAUSE = 10.0
_LAST_TRIES = 5
"""Number of error replies after which the rest of a log counts as lost."""

Consumer = Callable[[Batch, "Mapping[str, Any] | None"], Awaitable[None]]
"""Receives output and its position in the log, as plain data; no position for output that another process consumed."""


def log_path(namespace: str, pod: LogPod) -> str:
    """Returns the path of a pod's log."""
    return f"{PODS.path(namespace)}/{pod.name}/log"


def log_query(pod: LogPod, since: str | None, *, follow: bool = False, previous: bool = False) -> dict[str, str]:
    """Returns the parameters of a request for a pod's log from `since` on (as `LogCursor.since`).

    `follow` continues the response until the container ends; `previous` selects the previous container's log.
    """
    return {
        "container": pod.container,
        "timestamps": "true",
        **({"sinceTime": since} if since else {}),
        **({"follow": "true"} if follow else {}),
        **({"previous": "true"} if previous else {}),
    }


def not_shown(reply: Reply, namespaced: NamespacedClient) -> InfrastructureError:
    """Returns the error for a refused request for a log."""
    if lacks_permission(reply):
        return namespaced.missing_permission(reply)
    return InfrastructureError(f"the server refuses to return logs: HTTP {reply.status}: {reply.message.rstrip('.')}")


class PodLog:
    """Reads one pod's log and passes each line to a consumer, once.

    Args:
        resume: the position up to which another process has consumed the log; None: its beginning.
        read_timeout: seconds without a byte after which the log is requested again.
        allowed: whether the server has already returned a log of this run.

    Attributes:
        problem: why the log could not be read to its end.
    """

    def __init__(
        self,
        namespaced: NamespacedClient,
        pod: LogPod,
        consume: Consumer,
        connections: LogConnections,
        *,
        resume: Mapping[str, Any] | None = None,
        read_timeout: float = READ_TIMEOUT,
        allowed: bool = False,
    ) -> None:
        self._namespaced, self._path, self._consume = namespaced, log_path(namespaced.namespace, pod), consume
        self._connections, self._read_timeout = connections, read_timeout
        self.pod = pod
        self._changed = asyncio.Event()
        self._finishing = False
        # The current request, and the time since which a followed log has been silent.
        self._request = anyio.CancelScope()
        self._silent_since: float | None = None
        self._position = LogCursor()
        self._splitter: Splitter | PlainSplitter = Splitter(pod.source) if pod.agent else PlainSplitter(pod.source)
        # The position up to which another process has consumed the log; None once this reader has passed it.
        self._before = None if resume is None else LogCursor.from_dict(resume)
        self._starts_read = 0
        # Whether the last consumed line was printed after the container's last restart.
        self._amid_start = False
        self._failures = self._tries = 0
        self._grace = RefusalGrace(allowed)
        self.problem: StepsetError | None = None

    @property
    def allowed(self) -> bool:
        """Whether the server has already returned this log, or another log of the same run."""
        return self._grace.allowed

    def see(self, pod: LogPod) -> None:
        """Updates the pod."""
        if pod != self.pod:
            self.pod = pod
            self._changed.set()

    def reconnect(self) -> None:
        """Closes the current connection and requests the log again."""
        self._request.cancel()

    def finish(self) -> None:
        """Makes the reader end once it has read the log's current content."""
        self._finishing = True
        self._changed.set()
        if self.pod.over:
            self.request_again_if_silent()
        else:
            self._request.cancel()

    def request_again_if_silent(self) -> None:
        """Requests a followed log again if it is silent; for containers that have ended.

        A kubelet ends the response up to a second after the container, and answers a new request at once. It may not
        answer for a deleted pod, whose last lines only the open response contains.
        """
        since, allowed = self._silent_since, DELETED_READ_TIMEOUT if self.pod.deleted else ENDED_READ_TIMEOUT
        if since is not None and asyncio.get_running_loop().time() - since > allowed:
            self._request.cancel()

    async def run(self) -> None:
        """Reads until the log has ended or cannot be read; `problem` states the reason."""
        try:
            await self._read()
        except StepsetError as error:
            self.problem = error

    async def _read(self) -> None:
        while not (self.pod.started or self.pod.over or self._finishing):
            await self._wait(None)
        while (pod := self.pod).started:
            self._changed.clear()
            before = pod.restarts > self._starts_read
            last = not before and (pod.over or self._finishing)
            complete = await self._send_request(pod, follow=not (before or last), previous=before)
            if complete and (before or last):
                left = self._position.finish()
                await self._take(left, left if self._before is None else self._before.finish())
                await self._put(self._splitter.finish(), known=self._before is not None)
                if last:
                    return
                self._starts_read, self._amid_start, self._tries = pod.restarts, False, 0
            else:
                self._position.cut()
                if self._before is not None:
                    self._before.cut()
                await self._pause(_ENDED_PAUSE if complete else _FIRST_PAUSE)

    async def _pause(self, first: float) -> None:
        """Waits before the next request, at first for up to `first` seconds, or until the pod has changed."""
        # Many readers that lost one server must not reconnect at the same moment.
        seconds = min(_LONGEST_PAUSE, first * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        self._failures += 1
        if await self._wait(seconds):
            self._failures = 0

    async def _wait(self, seconds: float | None) -> bool:
        """Waits at most `seconds` until the pod changes; returns whether it did."""
        with anyio.move_on_after(seconds):
            await self._changed.wait()
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def _send_request(self, pod: LogPod, *, follow: bool, previous: bool) -> bool:
        """Sends one request; returns whether the response seems to be complete."""
        async with self._connections.one(self.reconnect if follow else None):
            with anyio.CancelScope() as self._request:
                if follow and self._finishing:
                    return False
                try:
                    return await self._response(pod, follow=follow, previous=previous)
                finally:
                    self._silent_since = None
        return False

    async def _response(self, pod: LogPod, *, follow: bool, previous: bool) -> bool:
        query = log_query(pod, self._position.since, follow=follow, previous=previous)
        self._silence(follow)  # the server sends no headers before the pod has printed
        try:
            async with self._namespaced.client.stream(
                self._path, query, self._read_timeout if follow else SNAPSHOT_READ_TIMEOUT
            ) as chunks:
                self._grace.granted()
                if not await self._pump(chunks, follow, previous=previous):
                    return False
        except UnreachableError:
            self._grace.unreachable()
            return False
        except RefusedError as refused:
            return self._refused(refused, pod, final=not follow, previous=previous)
        except InfrastructureError:
            if not self._grace.covers(asyncio.get_running_loop().time()):
                raise
            return False
        if error := self._position.error:
            return self._earlier_log_deleted(pod) if previous else not follow and self._lost(pod, error)
        return True

    async def _pump(self, chunks: AsyncIterator[bytes], follow: bool, *, previous: bool) -> bool:
        """Consumes a response unless it is the log of a restarted container; returns whether it was consumed."""
        clock = asyncio.get_running_loop().time
        before, resumes, began = copy(self._position), self._amid_start and not previous, clock()
        async for chunk in chunks:
            self._silent_since = None
            text = self._position.feed(chunk)
            if resumes and self._position.jumped:
                # First wait for `_restart_reported`: the chunk may belong to a restarted container.
                fed, self._position = self._position, before
                if await self._restart_reported():
                    return False
                self._position, resumes = fed, False
            new = text if self._before is None else self._before.feed(chunk)
            if text:
                self._failures = self._tries = 0
                self._amid_start = not previous
                await self._take(text, new)
            self._silence(follow)
        if clock() - began > _LONGEST_PAUSE:
            self._failures = 0
        return True

    def _silence(self, follow: bool) -> None:
        self._silent_since = asyncio.get_running_loop().time() if follow else None

    async def _restart_reported(self) -> bool:
        """Waits until `see` reports a restart of the container; returns False if it does not: the log was rotated."""
        with anyio.move_on_after(RESTART_REPORT_TIMEOUT):
            while self.pod.restarts == self._starts_read and not self.pod.over:
                await self._changed.wait()
                self._changed.clear()
        return self.pod.restarts > self._starts_read

    def _refused(self, refused: RefusedError, pod: LogPod, *, final: bool, previous: bool) -> bool:
        """Handles a refusal; returns whether it is final."""
        status = refused.reply.status
        if status not in (*NOT_YET, NOT_FOUND):
            if self._grace.covers(asyncio.get_running_loop().time()):
                return False
            raise not_shown(refused.reply, self._namespaced) from refused
        if previous:
            return self._earlier_log_deleted(pod)
        return (status == NOT_FOUND and pod.deleted) or (final and self._lost(pod, refused.reply.message))

    def _earlier_log_deleted(self, pod: LogPod) -> bool:
        """Records that the log of the previous container is deleted: the kubelet keeps at most one."""
        self.problem = InfrastructureError(
            f"pod {pod.name}: the log of its previous container is deleted; some of its lines may be missing"
        )
        return True

    def _lost(self, pod: LogPod, message: str) -> bool:
        """Counts an error reply to a request for the rest of a log; returns whether the rest counts as lost."""
        self._tries += 1
        if self._tries < _LAST_TRIES:
            return False
        self.problem = InfrastructureError(
            f"pod {pod.name}: the rest of its log cannot be read: {one_line(message, 300) or 'it is empty'}; its node"
            " may have removed it"
        )
        return True

    async def _take(self, text: bytes, new: bytes) -> None:
        """Consumes `text`, of which another process has consumed all but the suffix `new`."""
        if self._before is not None:
            if new and not text.endswith(new):
                new = text  # the other process stopped within a line that is complete here
            if known := text[: len(text) - len(new)]:
                await self._put(self._splitter.feed(known), known=True)
            if not new:
                return
            self._before = None
        if new:
            await self._put(self._splitter.feed(new))

    async def _put(self, batch: Batch, *, known: bool = False) -> None:
        if batch.lines or batch.between or batch.progress:
            # Connections may be closed at any moment, but received lines must not be lost.
            with anyio.CancelScope(shield=True):
                await self._consume(batch, None if known else self._position.to_dict())
