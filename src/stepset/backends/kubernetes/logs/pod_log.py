"""`PodLog`, which reads the complete log of one pod, across lost connections and restarts of the container.

A response may end early (stepset.watch.log_cursor). Therefore the reader sends a new request after the container has
terminated. The log is complete when the response to this request is complete, and the container runtime has had
LAST_LINES_DELAY seconds to write the last lines.

The caller calls `see` after each change of the pod, but this call may be late. If the container was restarted, the
server may return the log of the new container before `see` reports the restart. Such a response does not begin with the
last line that was read. In this case, the reader waits for a call of `see` that reports a restart:

- If `see` reports a restart, the reader discards the response. The reader then reads the rest of the previous
  container's log.
- If `see` reports no restart, the log was rotated.

A slow consumer slows down the reader and the server. A slow consumer does not slow down the container, because the
container runtime writes the log to a file.
"""

from __future__ import annotations

import asyncio
import random
import time
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
"""If no byte arrives for this number of seconds, the reader requests the log again, because the server may be down.

TCP keepalive may detect earlier that the server is down, but keepalive does not work through every proxy."""
ENDED_READ_TIMEOUT = 0.2
"""Like READ_TIMEOUT, for a container that has terminated."""
DELETED_READ_TIMEOUT = 10.0
"""Like READ_TIMEOUT, for a deleted pod.

The timeout is long, because only the open response contains the last lines of a deleted pod."""
SNAPSHOT_READ_TIMEOUT = 15.0
"""Like READ_TIMEOUT, for a log that is not followed."""
RESTART_REPORT_TIMEOUT = 5.0
"""Seconds to wait for the report of a restart if a response seems to be the log of a restarted container."""
NOT_YET = (204, 400)
"""HTTP statuses of refused requests for logs. There are three causes: the pod has no node, the kubelet does not know
the pod yet, or the container has not started."""

LAST_LINES_DELAY = 1.0
"""Seconds after the report of a container's end in which the container runtime may still write the last lines.

containerd reports the end when its log writer has received the last bytes. Afterwards, the writer splits up to 4 KiB
into lines and writes them to the file (containerd v2.4.0-beta internal/cri/io/logger.go: redirectLogs reads through a
bufio.Reader; client/task.go: Delete waits for the copy into this reader). On an idle node, this takes milliseconds."""
_RECENT = 10.0
"""A container that ended this number of seconds ago has written its last lines, even if the clocks differ slightly."""

_FIRST_PAUSE = 0.2
"""Seconds to wait before the reader requests a log again after the connection was lost."""
_ENDED_PAUSE = 1.0
"""Like _FIRST_PAUSE, but for a response that seems to be complete.

Probably `see` reports during this pause that the container has terminated."""
_LONGEST_PAUSE = 10.0
_LAST_TRIES = 5
"""The number of error replies after which the rest of a log is treated as lost."""

Consumer = Callable[[Batch, "Mapping[str, Any] | None"], Awaitable[None]]
"""A function that receives output, and the position of this output in the log as plain data.

The position is None if another process has consumed the output."""


def log_path(namespace: str, pod: LogPod) -> str:
    """Returns the path of a pod's log."""
    return f"{PODS.path(namespace)}/{pod.name}/log"


def log_query(pod: LogPod, since: str | None, *, follow: bool = False, previous: bool = False) -> dict[str, str]:
    """Returns the query parameters of a request for a pod's log.

    Args:
        pod: the pod.
        since: the time of the first requested line, in the format of `LogCursor.since`. None means the beginning of
            the log.
        follow: whether the response continues until the container terminates.
        previous: whether to request the log of the container before its last restart.
    """
    return {
        "container": pod.container,
        "timestamps": "true",
        **({"sinceTime": since} if since else {}),
        **({"follow": "true"} if follow else {}),
        **({"previous": "true"} if previous else {}),
    }


def not_shown(reply: Reply, namespaced: NamespacedClient) -> InfrastructureError:
    """Returns the error to raise if the server refused to return a log."""
    if lacks_permission(reply):
        return namespaced.missing_permission(reply)
    return InfrastructureError(f"the server refuses to return logs: HTTP {reply.status}: {reply.message.rstrip('.')}")


class PodLog:
    """Reads one pod's log, and passes each line to a consumer exactly once.

    Args:
        consume: receives the output.
        connections: limits the number of logs that are read at the same time.
        resume: the position up to which another process has consumed the log. None means that no line was consumed.
        read_timeout: a number of seconds. If the server sends no byte for this time, the log is requested again.
        allowed: whether the server has already returned a log of this run.

    Attributes:
        problem: the reason why the log could not be read completely; None if there is no problem.
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
        # The current request, and the time at which the last byte of a followed log arrived.
        self._request = anyio.CancelScope()
        self._silent_since: float | None = None
        self._position = LogCursor()
        self._splitter: Splitter | PlainSplitter = Splitter(pod.source) if pod.agent else PlainSplitter(pod.source)
        # The position up to which another process has consumed the log. None after this reader has passed the position.
        self._before = None if resume is None else LogCursor.from_dict(resume)
        self._starts_read = 0
        # Whether the container printed the last consumed line after its last restart.
        self._amid_start = False
        self._failures = self._tries = 0
        recent = pod.ended is not None and abs(time.time() - pod.ended) < _RECENT
        # The time, by the monotonic clock, from which a response contains the last lines of the terminated container.
        self._complete_from = time.monotonic() + LAST_LINES_DELAY if pod.over and recent else 0.0
        self._grace = RefusalGrace(allowed)
        self.problem: StepsetError | None = None

    @property
    def allowed(self) -> bool:
        """Whether the server has already returned this log or another log of the same run."""
        return self._grace.allowed

    def see(self, pod: LogPod) -> None:
        """Reports the current state of the pod to this reader."""
        if pod != self.pod:
            if pod.over and not (pod.deleted or self.pod.over):
                self._complete_from = time.monotonic() + LAST_LINES_DELAY
            self.pod = pod
            self._changed.set()

    def reconnect(self) -> None:
        """Closes the current connection. Then the reader requests the log again."""
        self._request.cancel()

    def finish(self) -> None:
        """Makes `run` return once the reader has read the current content of the log."""
        self._finishing = True
        self._changed.set()
        if self.pod.over:
            self.request_again_if_silent()
        else:
            self._request.cancel()

    def request_again_if_silent(self) -> None:
        """Requests the log of a terminated container again if no byte has arrived for a while.

        After a container has terminated, the kubelet may keep the open response for up to a second. The kubelet answers
        a new request at once. If the pod was deleted, however, the kubelet may refuse a new request, and only the open
        response contains the last lines. Therefore the reader waits longer before it requests the log of a deleted pod.
        """
        since, allowed = self._silent_since, DELETED_READ_TIMEOUT if self.pod.deleted else ENDED_READ_TIMEOUT
        if since is not None and asyncio.get_running_loop().time() - since > allowed:
            self._request.cancel()

    async def run(self) -> None:
        """Reads until the log is complete. If the log cannot be read, sets `problem` to the reason and returns."""
        try:
            await self._read()
        except StepsetError as error:
            self.problem = error

    async def _read(self) -> None:
        while not (self.pod.started or self.pod.over or self._finishing):
            await self._wait(None)
        repeated = False  # whether the reader has already received the log of the terminated container once
        while (pod := self.pod).started:
            self._changed.clear()
            before = pod.restarts > self._starts_read
            last = not before and (pod.over or self._finishing)
            asked = time.monotonic()
            complete = await self._send_request(pod, follow=not (before or last), previous=before) or repeated
            if complete and last and not repeated and asked < self._complete_from:
                repeated = True
                self._cut()
                await asyncio.sleep(self._complete_from - time.monotonic())
            elif complete and (before or last):
                left = self._position.finish()
                await self._take(left, left if self._before is None else self._before.finish())
                await self._put(self._splitter.finish(), known=self._before is not None)
                if last:
                    return
                self._starts_read, self._amid_start, self._tries = pod.restarts, False, 0
            else:
                self._cut()
                await self._pause(_ENDED_PAUSE if complete else _FIRST_PAUSE)

    def _cut(self) -> None:
        """Prepares the positions for the next response."""
        self._position.cut()
        if self._before is not None:
            self._before.cut()

    async def _pause(self, first: float) -> None:
        """Pauses before the next request. The pause ends early if the pod changes.

        The first pause takes at most `first` seconds. Later pauses become longer, up to _LONGEST_PAUSE.
        """
        # The pause is random. Otherwise all readers would reconnect to a restarted server at the same moment.
        seconds = min(_LONGEST_PAUSE, first * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        self._failures += 1
        if await self._wait(seconds):
            self._failures = 0

    async def _wait(self, seconds: float | None) -> bool:
        """Waits until the pod changes, or until `seconds` seconds have passed. Returns whether the pod has changed."""
        with anyio.move_on_after(seconds):
            await self._changed.wait()
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def _send_request(self, pod: LogPod, *, follow: bool, previous: bool) -> bool:
        """Sends one request. Returns whether the response seems to be complete."""
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
        self._silence(follow)  # the server sends no headers until the pod prints its first line
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
        """Consumes a response, and returns True.

        If the response is the log of a restarted container, does not consume the response, and returns False.
        """
        clock = asyncio.get_running_loop().time
        before, resumes, began = copy(self._position), self._amid_start and not previous, clock()
        async for chunk in chunks:
            self._silent_since = None
            text = self._position.feed(chunk)
            if resumes and self._position.jumped:
                # The chunk may belong to a restarted container. First wait for the report of a restart.
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
        """Waits until `see` reports a restart of the container. Returns False if no restart is reported in time.

        If no restart is reported, the log was rotated.
        """
        with anyio.move_on_after(RESTART_REPORT_TIMEOUT):
            while self.pod.restarts == self._starts_read and not self.pod.over:
                await self._changed.wait()
                self._changed.clear()
        return self.pod.restarts > self._starts_read

    def _refused(self, refused: RefusedError, pod: LogPod, *, final: bool, previous: bool) -> bool:
        """Handles a refused request. Returns whether the refusal is final."""
        status = refused.reply.status
        if status not in (*NOT_YET, NOT_FOUND):
            if self._grace.covers(asyncio.get_running_loop().time()):
                return False
            raise not_shown(refused.reply, self._namespaced) from refused
        if previous:
            return self._earlier_log_deleted(pod)
        return (status == NOT_FOUND and pod.deleted) or (final and self._lost(pod, refused.reply.message))

    def _earlier_log_deleted(self, pod: LogPod) -> bool:
        """Records that the log of the previous container is deleted. The kubelet keeps at most one previous log."""
        self.problem = InfrastructureError(
            f"pod {pod.name}: the log of its previous container is deleted; some of its lines may be missing"
        )
        return True

    def _lost(self, pod: LogPod, message: str) -> bool:
        """Counts failed requests for the rest of a log. Returns whether the reader stops requesting the rest."""
        self._tries += 1
        if self._tries < _LAST_TRIES:
            return False
        self.problem = InfrastructureError(
            f"pod {pod.name}: the rest of its log cannot be read: {one_line(message, 300) or 'it is empty'}; its node"
            " may have removed it"
        )
        return True

    async def _take(self, text: bytes, new: bytes) -> None:
        """Consumes `text`. `new` is the part of `text` that no other process has consumed. `text` ends with `new`."""
        if self._before is not None:
            if new and not text.endswith(new):
                new = text  # the other process has consumed only a part of the line
            if known := text[: len(text) - len(new)]:
                await self._put(self._splitter.feed(known), known=True)
            if not new:
                return
            self._before = None
        if new:
            await self._put(self._splitter.feed(new))

    async def _put(self, batch: Batch, *, known: bool = False) -> None:
        if batch.lines or batch.between or batch.progress:
            batch.at = self._position.printed_at
            # A connection may be closed at any moment. Without the shield, received lines could be lost.
            with anyio.CancelScope(shield=True):
                await self._consume(batch, None if known else self._position.to_dict())
