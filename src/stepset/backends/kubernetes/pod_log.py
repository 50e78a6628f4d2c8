"""One pod's log followed in a thread, from its container's start to its end, over cuts and restarts.

Used by RunLogs. What comes is handed to a sink as batches of lines. A sink that is slow slows the reader down, and with
it the server, but not the container: its runtime writes the log to a file. In memory is a chunk, and of a line without
end what stepset.watch.lines keeps of it.

An answer's end says little (stepset.watch.resume), so the log is at its end when a request has been answered to the
end that was made after the container's. Whoever makes a PodLog tells it what becomes of the pod. That may come late:
who goes on reading a container that has started again meanwhile is given the log of its next start, unasked. Such an
answer is known by what it does not begin with, and is left until word of the start comes, because the rest of the
start before is read first.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from copy import copy

from stepset.backends.kubernetes.client import Connection, RefusedError, Reply, UnreachableError
from stepset.backends.kubernetes.log_pods import LogPod
from stepset.backends.kubernetes.refusals import Forbearance, may_not
from stepset.backends.kubernetes.site import PODS
from stepset.backends.kubernetes.stream import Stream
from stepset.errors import InfrastructureError, StepsetError
from stepset.watch.cluster.fields import one_line
from stepset.watch.lines import Batch, Splitter
from stepset.watch.plain_lines import PlainSplitter
from stepset.watch.resume import Resume

QUIET = 120.0
"""Seconds without a byte after which a log is asked for again: who is silent may be gone. The network's own keepalive
notices sooner, but not through everything that stands between."""
HURRY = 3.0
"""The same, once the container has ended and its last lines are waited for."""

LAST_QUIET = 15.0
"""The same for what is there already."""

WORD = 5.0
"""Seconds for which word of a container's next start is waited for where its log seems to be another's."""

_FIRST_PAUSE = 0.2
"""Seconds before a log is asked for again that was cut."""
_ENDED_PAUSE = 1.0
"""The same where it seems to have ended: word of the container's end should come meanwhile."""
_LONGEST_PAUSE = 10.0
NOT_YET = (204, 400)
"""No node has the pod yet; the kubelet does not know it, or its container, or has not started that."""
_LAST_TRIES = 5
"""Requests for the rest of a log that may be answered with an error before it is taken for lost."""


def splitter_of(pod: LogPod) -> Splitter | PlainSplitter:
    """What makes lines of a pod's log."""
    return Splitter(pod.source) if pod.agent else PlainSplitter(pod.source)


def log_path(namespace: str, pod: LogPod) -> str:
    """Where a pod's log is asked for."""
    return f"{PODS.path(namespace)}/{pod.name}/log"


def log_query(pod: LogPod, since: str | None, *, follow: bool = False, previous: bool = False) -> dict[str, str]:
    """How it is asked for.

    Args:
        pod: whose.
        since: as `Resume.since`.
        follow: go on until the container ends.
        previous: of the container's last start but one.
    """
    return {
        "container": pod.container,
        "timestamps": "true",
        **({"sinceTime": since} if since else {}),
        **({"follow": "true"} if follow else {}),
        **({"previous": "true"} if previous else {}),
    }


def not_shown(reply: Reply, namespace: str) -> InfrastructureError:
    """The error that the server will not show a log."""
    message = " ".join(str(reply.body.get("message", "")).split()).rstrip(".")
    if not may_not(reply):
        return InfrastructureError(f"the server does not show the logs: HTTP {reply.status}: {message[:300]}")
    return InfrastructureError(
        f"rbac: {message}; have an administrator run: stepset rbac --namespace {namespace} | kubectl apply -f -"
    )


class PodLog:
    """Reads one pod's log and hands on each line once.

    Args:
        connection: the server.
        namespace: where the pod is.
        pod: as first seen.
        sink: is given what was printed, from the reader's thread; may block.
        quiet: seconds without a byte after which the log is asked for again.
        let: the server has shown logs here before.

    Attributes:
        problem: why not all of it could be read, or None.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        pod: LogPod,
        sink: Callable[[Batch], None],
        quiet: float = QUIET,
        let: bool = False,
    ) -> None:
        self._connection, self._namespace, self._path = connection, namespace, log_path(namespace, pod)
        self._sink, self._quiet = sink, quiet
        self._pod = pod
        self._changed = threading.Condition()
        self._finishing = self._closed = False
        self._stream: Stream | None = None
        # While a log is followed and nothing comes.
        self._silent_since: float | None = None
        self._resume, self._splitter = Resume(), splitter_of(pod)
        self._starts_read = 0
        # Whether the last line that was handed on is of the start that is read.
        self._amid_start = False
        self._failures = self._tries = 0
        self._broken_off = False
        self._forbearance = Forbearance(let)
        self.problem: StepsetError | None = None
        self._thread = threading.Thread(target=self._run, name=f"log of {pod.name}", daemon=True)

    @property
    def let(self) -> bool:
        """Whether the server has shown this one, or another before."""
        return self._forbearance.allowed

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def see(self, pod: LogPod) -> None:
        """The pod has changed."""
        with self._changed:
            if pod != self._pod:
                self._pod = pod
                self._changed.notify_all()

    def reconnect(self) -> None:
        """Gives the present connection up and asks again."""
        self._break_off()

    def finish(self) -> None:
        """Nothing that is printed from now on is wanted: reads what is there, and ends."""
        with self._changed:
            self._finishing = True
            over = self._pod.over
            self._changed.notify_all()
        if not over:
            self._break_off()

    def hurry(self) -> None:
        """Asks again where a log was followed and nothing has come for some seconds; for containers that have ended."""
        since = self._silent_since
        if since is not None and time.monotonic() - since > HURRY:
            self._break_off()

    def close(self) -> None:
        """Ends; returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._break_off()

    @property
    def name(self) -> str:
        """The pod's."""
        return self._pod.name

    @property
    def alive(self) -> bool:
        """Whether it still reads."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Waits until it has ended, or for so many seconds."""
        self._thread.join(timeout)

    def _break_off(self) -> None:
        self._broken_off = True
        if (stream := self._stream) is not None:
            stream.close()

    def _run(self) -> None:
        try:
            self._read()
        except _ClosedError:
            pass
        except StepsetError as error:
            self.problem = error

    def _read(self) -> None:
        pod = self._begun()
        while pod.begun:
            before = pod.restarts > self._starts_read
            last = not before and (pod.over or self._finishing)
            complete = self._ask(pod, follow=not (before or last), previous=before)
            if complete and (before or last):
                self._hand(self._resume.finish())
                self._hand_batch(self._splitter.finish())
                if last:
                    return
                self._starts_read, self._amid_start, self._tries = pod.restarts, False, 0
                pod = self._now()
            else:
                self._resume.cut()
                pod = self._pause(pod, _ENDED_PAUSE if complete else _FIRST_PAUSE)

    def _begun(self) -> LogPod:
        """The pod once there is a log, or will never be one."""
        with self._changed:
            self._changed.wait_for(lambda: self._pod.begun or self._pod.over or self._finishing or self._closed)
        return self._now()

    def _now(self) -> LogPod:
        if self._closed:
            raise _ClosedError
        return self._pod

    def _pause(self, pod: LogPod, first: float) -> LogPod:
        """Waits before the next request, unless the pod is not what it was at the last.

        Args:
            pod: as it was at the last request.
            first: seconds that are waited at most, at the first of several times.

        Returns:
            The pod as it is now.
        """
        # Many readers that lost one server must not all come back at the same moment.
        wait = min(_LONGEST_PAUSE, first * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        self._failures += 1
        with self._changed:
            finishing = self._finishing
            if self._changed.wait_for(
                lambda: self._pod != pod or self._finishing != finishing or self._closed, timeout=wait
            ):
                self._failures = 0
        return self._now()

    def _ask(self, pod: LogPod, *, follow: bool, previous: bool) -> bool:
        """One request; whether it was answered to what looks like the end."""
        query = log_query(pod, self._resume.since, follow=follow, previous=previous)
        self._broken_off = False
        stream = self._connection.stream(self._path, query, self._quiet if follow else LAST_QUIET)
        try:
            # Of a pod that has not printed yet the server sends not even a head.
            self._stream, self._silent_since = stream, time.monotonic() if follow else None
            if self._closed or (follow and self._finishing):
                return False
            with stream:
                self._forbearance.granted()
                if not self._pump(stream, follow, previous=previous):
                    return False
        except UnreachableError:
            self._forbearance.unreachable()
            return False
        except RefusedError as refused:
            return self._refused(refused, pod, final=not follow, previous=previous)
        except InfrastructureError:
            if not self._forbearance.bears(time.monotonic()):
                raise
            return False
        finally:
            self._stream = self._silent_since = None
        if self._broken_off:
            return False
        if complaint := self._resume.complaint:
            # Of the starts before, the kubelet keeps one, until the next has ended.
            return previous or (not follow and self._lost(pod, complaint))
        return True

    def _pump(self, stream: Stream, follow: bool, *, previous: bool) -> bool:
        """Hands on what comes; False: nothing of it, for it is the log of the container's next start."""
        before, resumes = copy(self._resume), self._amid_start and not previous
        began = time.monotonic()
        while True:
            self._silent_since = time.monotonic() if follow else None
            chunk = stream.read()
            self._silent_since = None
            if not chunk:
                break
            text = self._resume.feed(chunk)
            if resumes and self._resume.jumped:
                if self._started_again():
                    self._resume = before
                    return False
                resumes = False
            if text:
                self._failures = self._tries = 0
                self._amid_start = not previous
                self._hand(text)
        if time.monotonic() - began > _LONGEST_PAUSE:
            self._failures = 0
        return True

    def _started_again(self) -> bool:
        """Whether word comes that the container has started again; none does where its log was rotated."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._pod.restarts > self._starts_read or self._pod.over or self._closed, timeout=WORD
            )
            return self._pod.restarts > self._starts_read

    def _refused(self, refused: RefusedError, pod: LogPod, *, final: bool, previous: bool) -> bool:
        """The server has no log to give; whether that is all it will ever say."""
        status, said = refused.reply.status, str(refused.reply.body.get("message", ""))
        if status not in (*NOT_YET, 404):
            if self._forbearance.bears(time.monotonic()):
                return False
            raise not_shown(refused.reply, self._namespace) from refused
        return previous or (status == 404 and pod.gone) or (final and self._lost(pod, said))

    def _lost(self, pod: LogPod, said: str) -> bool:
        """The rest of a log is asked for and an error comes; whether to take it for lost."""
        self._tries += 1
        if self._tries < _LAST_TRIES:
            return False
        self.problem = InfrastructureError(
            f"pod {pod.name}: the rest of its log cannot be read: {one_line(said, 300) or 'it is empty'}; its node may"
            " have removed it"
        )
        return True

    def _hand(self, text: bytes) -> None:
        if text:
            self._hand_batch(self._splitter.feed(text))

    def _hand_batch(self, batch: Batch) -> None:
        if batch.lines or batch.events or batch.progress:
            self._sink(batch)
        if self._closed:
            raise _ClosedError


class _ClosedError(Exception):
    """Whoever made the reader does not want it any more."""
