"""The logs of a run's pods followed in the triggerer's event loop, each line once, also over a hand-over.

The asynchronous carrier of `stepset.watch.resume.Resume`, as backends/kubernetes/pod_log.py is the threads'; how a log
ends, and what an answer's end means, is told there. Used by the trigger.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepset_airflow.within import within

if TYPE_CHECKING:
    from stepset.backends.kubernetes.log_pods import LogPod, Ranks
    from stepset.watch.lines import Batch
    from stepset_airflow.async_client import AsyncCluster

_WAITING = 1024 * 1024
"""Bytes of memory that may wait to be written for one run, about, and what one chunk is more."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.3, 10.0
_LAST_TRIES = 5
_LOOK = 0.1


@dataclass(frozen=True)
class Printed:
    """What a pod printed.

    Args:
        pod: its uid.
        batch: of its output.
        place: where in its log that ends, as plain data; None: another process has handed it on already.
    """

    pod: str
    batch: Batch
    place: Mapping[str, Any] | None


class AsyncLogs:
    """Follows the logs of one run's pods, from their beginnings: a status knows more of what was printed before, too.

    Args:
        cluster: the connection.
        sources: only pods that may hold lines of these are read; None: all; empty: none.
        ranks: which pods hold which ranks, as the workload says.
        printed: what another process has handed on already, as `printed` says.

    Attributes:
        inbox: what pods printed; readers wait while it is full.
    """

    def __init__(
        self,
        cluster: AsyncCluster,
        sources: frozenset[str] | None,
        ranks: Ranks,
        printed: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        from stepset.backends.kubernetes.inbox import AsyncInbox

        self.inbox: asyncio.Queue[Printed] = AsyncInbox(_WAITING, lambda printed: printed.batch.weight)
        self._cluster, self._sources, self._ranks = cluster, sources, ranks
        self._places = {uid: dict(each) for uid, each in (printed or {}).items()}
        self._readers: dict[str, _Reader] = {}
        self._finishing = False

    def see(self, pods: Iterable[LogPod]) -> None:
        """Takes the run's pods as they are now."""
        from stepset.backends.kubernetes.log_pods import may_hold

        for pod in pods:
            reader = self._readers.get(pod.uid)
            if reader is not None:
                reader.see(pod)
            elif pod.begun and not self._finishing and may_hold(pod, self._sources, self._ranks):
                let = any(other.forbearance.allowed for other in self._readers.values())
                self._readers[pod.uid] = _Reader(self._cluster, pod, self.inbox, self._places.get(pod.uid), let)

    async def finish(self, seconds: float) -> None:
        """Nothing that is printed from now on is wanted: waits until what was is in `inbox`, for so long at most."""
        self._finishing = True
        for reader in self._readers.values():
            reader.finish()
        tasks = [reader.task for reader in self._readers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def close(self) -> None:
        """Ends all readers."""
        tasks = [reader.task for reader in self._readers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wrote(self, printed: Printed) -> None:
        """Whoever reads `inbox` has handed this on."""
        if printed.place is not None:
            self._places[printed.pod] = dict(printed.place)

    @property
    def printed(self) -> dict[str, dict[str, Any]]:
        """What was handed on of each pod's log, as plain data, for whoever goes on."""
        return dict(self._places)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some logs could not be read to their end, each in one line."""
        return tuple(reader.problem for reader in self._readers.values() if reader.problem)


class _Reader:
    """One pod's log."""

    def __init__(
        self,
        cluster: AsyncCluster,
        pod: LogPod,
        inbox: asyncio.Queue[Printed],
        before: Mapping[str, Any] | None,
        let: bool,
    ) -> None:
        from stepset.backends.kubernetes.pod_log import splitter_of
        from stepset.backends.kubernetes.refusals import Forbearance
        from stepset.watch.resume import Resume

        self.problem = ""
        self.forbearance = Forbearance(let)
        self._cluster, self._pod, self._inbox = cluster, pod, inbox
        self._resume = Resume()
        # Goes through the same answers until it finds what its predecessor has not handed on.
        self._before = None if before is None else Resume.from_dict(before)
        self._splitter = splitter_of(pod)
        self._starts_read = 0
        # Whether the last line that was read is of the start that is read.
        self._amid_start = False
        self._failures = self._tries = 0
        self._finishing = False
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def see(self, pod: LogPod) -> None:
        if pod != self._pod:
            self._pod = pod
            self._changed.set()

    def finish(self) -> None:
        self._finishing = True
        self._changed.set()

    async def _run(self) -> None:
        from stepset.errors import StepsetError

        try:
            await self._read()
        except StepsetError as error:
            self.problem = str(error)

    async def _read(self) -> None:
        while True:
            pod, finishing = self._pod, self._finishing
            self._changed.clear()
            before = pod.restarts > self._starts_read
            last = not before and (pod.over or finishing)
            complete = await self._ask(pod, follow=not (before or last), previous=before)
            if complete and (before or last):
                left = self._resume.finish()
                await self._hand(left, left if self._before is None else self._before.finish())
                await self._put(self._splitter.finish(), known=self._before is not None)
                if last:
                    return
                self._starts_read, self._amid_start, self._tries = pod.restarts, False, 0
                continue
            self._resume.cut()
            if self._before is not None:
                self._before.cut()
            self._failures += 1
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
            await within(pause, self._changed.wait())

    async def _ask(self, pod: LogPod, *, follow: bool, previous: bool) -> bool:
        """One request; whether it was answered to what looks like the end."""
        from stepset.backends.kubernetes.client import RefusedError, UnreachableError
        from stepset.backends.kubernetes.pod_log import LAST_QUIET, QUIET, log_path, log_query

        query = log_query(pod, self._resume.since, follow=follow, previous=previous)
        quiet = QUIET if follow else LAST_QUIET
        try:
            async with self._cluster.stream(log_path(self._cluster.namespace, pod), query, quiet) as chunks:
                self.forbearance.granted()
                pump = self._pump(chunks, previous=previous)
                if not await (self._while_wanted(pump) if follow else pump):
                    return False
        except UnreachableError:
            self.forbearance.unreachable()
            return False
        except RefusedError as refused:
            return self._refused(refused, pod, final=not follow, previous=previous)
        if complaint := self._resume.complaint:
            return not follow and self._lost(pod, complaint)
        return True

    async def _while_wanted(self, pumped: Coroutine[Any, Any, bool]) -> bool:
        """Reads a log that is followed, until it ends or nothing more is wanted; whether it ended."""
        pump = asyncio.ensure_future(pumped)
        try:
            while not pump.done():
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({pump, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if self._finishing and not pump.done():
                    return False
                self._changed.clear()
            return await pump
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, chunks: AsyncIterator[bytes], *, previous: bool) -> bool:
        """Hands on what comes; False: nothing of it, for it is the log of the container's next start."""
        before, resumes = copy(self._resume), self._amid_start and not previous
        async for chunk in chunks:
            text = self._resume.feed(chunk)
            if resumes and self._resume.jumped:
                if await self._started_again():
                    self._resume = before
                    return False
                resumes = False
            new = text if self._before is None else self._before.feed(chunk)
            if text:
                self._failures = self._tries = 0
                self._amid_start = not previous
                await self._hand(text, new)
        return True

    async def _started_again(self) -> bool:
        """Whether word comes that the container has started again; none does where its log was rotated."""
        from stepset.backends.kubernetes.pod_log import WORD

        now = asyncio.get_running_loop().time
        until = now() + WORD
        while self._pod.restarts == self._starts_read and not self._pod.over and now() < until:
            await asyncio.sleep(_LOOK)
        return self._pod.restarts > self._starts_read

    def _refused(self, refused: Any, pod: LogPod, *, final: bool, previous: bool) -> bool:
        """The server has no log to give; whether that is all it will ever say."""
        from stepset.backends.kubernetes.pod_log import NOT_YET, not_shown

        status, said = refused.reply.status, str(refused.reply.body.get("message", ""))
        if status not in (*NOT_YET, 404):
            if self.forbearance.bears(asyncio.get_running_loop().time()):
                return False
            raise not_shown(refused.reply, self._cluster.namespace) from refused
        if previous and "previous terminated container" in said:
            return True
        if status == 404 and pod.gone:
            return True
        return final and self._lost(pod, said)

    def _lost(self, pod: LogPod, said: str) -> bool:
        """The rest of a log is asked for and an error comes; whether to take it for lost."""
        self._tries += 1
        if self._tries < _LAST_TRIES:
            return False
        self.problem = f"pod {pod.name}: the rest of its log cannot be read: {said[:300] or 'it is empty'}"
        return True

    async def _hand(self, text: bytes, new: bytes) -> None:
        """Hands on what was printed, of which `new`, its end, nobody has handed on before."""
        if self._before is not None:
            if new and not text.endswith(new):
                new = text  # the predecessor has stopped amid a line that is whole here
            if known := text[: len(text) - len(new)]:
                await self._put(self._splitter.feed(known), known=True)
            if not new:
                return
            self._before = None
        if new:
            await self._put(self._splitter.feed(new))

    async def _put(self, batch: Batch, *, known: bool = False) -> None:
        if batch.lines or batch.events or batch.progress:
            await self._inbox.put(Printed(self._pod.uid, batch, None if known else self._resume.to_dict()))
