"""One run, followed by a trigger to its end, or to the end of the task's time: its lines and its states as they come.

Made by triggers.py, which says what is wanted; everything in it waits without blocking.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from stepset_airflow.task_log import find_callbacks
from stepset_airflow.within import within

if TYPE_CHECKING:
    from stepset.watch.state import RunStatus
    from stepset_airflow.async_logs import AsyncLogs
    from stepset_airflow.handover import Handover, Position
    from stepset_airflow.page.async_writer import AsyncPageWriter
    from stepset_airflow.shared_watch import Following
    from stepset_airflow.task_log import TaskLog
    from stepset_airflow.triggers import DistributedTrainTrigger

_SLICE = 50
"""Lines written before others in the event loop have their turn."""


class Follower:
    """One run, followed to its end or to the end of the task's time."""

    def __init__(
        self,
        trigger: DistributedTrainTrigger,
        followed: Following,
        logs: AsyncLogs,
        reports: Any,
        shown: TaskLog,
        page: AsyncPageWriter,
        handover: Handover,
    ) -> None:
        from stepset.watch.cluster.keeper import Keeper, Patience
        from stepset.watch.state import RunStatus

        self._trigger, self._followed, self._logs = trigger, followed, logs
        self._reports, self._shown, self._page, self._handover = reports, shown, page, handover
        self._keeper = Keeper(Patience(trigger.admission_timeout, trigger.startup_timeout, quiet=trigger.quiet_after))
        self._callbacks = find_callbacks(trigger.callbacks)
        self._joiners: dict[str, Any] = {}
        self._status = RunStatus(followed.run, followed.run, "kubernetes")
        self._at = str(handover.before.get("at", ""))

    @property
    def position(self) -> Position:
        """Where the writing stands."""
        return {"told": self._shown.told, "printed": self._logs.printed, "at": self._at}

    async def follow(self, writer: asyncio.Task[None]) -> dict[str, Any]:
        """The event's payload.

        Args:
            writer: runs `write`.
        """
        from stepset.watch.cluster.keeper import silence

        late = False
        while not self._status.phase.final and not late:
            late = not await self._news()
            if self._followed.failed is not None:
                raise self._followed.failed
            watch = self._followed.watch
            silent = silence(watch.cluster.connection.server, watch.silent_for())
            if not self._followed.complete:
                await self._tell(self._status.with_(notes=silent))
                continue
            self._logs.see(self._followed.pods)
            self._reports.tidy(self._followed.objects)
            status = self._present()
            if not status.phase.final:
                await self._release()
            await self._tell(status.with_(notes=(*self._followed.unseen, *status.notes, *silent)), final=False)
        await self._logs.finish(_last_lines())
        await self._proof()
        written = asyncio.ensure_future(self._logs.inbox.join())
        await asyncio.wait({written, writer}, return_when=asyncio.FIRST_COMPLETED)
        written.cancel()
        if writer.done():
            writer.result()
        return await self._event(late)

    async def write(self) -> None:
        """Writes what pods print, for ever."""
        from stepset.watch.lines import Joiner, log_lines

        inbox = self._logs.inbox
        while True:
            printed = await inbox.get()
            batch, known = printed.batch, printed.place is None
            if known:
                batch = replace(batch, progress=[])  # it is shown already, or more is
            else:
                self._keeper.heard(asyncio.get_running_loop().time())
            self._reports.see(printed.pod, batch)
            joiner = self._joiners.setdefault(printed.pod, Joiner())
            sources = self._trigger.sources
            for count, line in enumerate(log_lines(joiner.join(batch.lines)), 1):
                if not known and (sources is None or line.source in sources):
                    await self._handover.may_write_a_line()
                    self._shown.on_line(line)
                if not count % _SLICE:
                    await asyncio.sleep(0)
            self._logs.wrote(printed)
            if not known:
                self._at = datetime.now(timezone.utc).isoformat()
            self._handover.wrote()
            if batch.progress or batch.events:
                self._followed.news.set()
            inbox.task_done()

    async def _news(self) -> bool:
        """Waits until there is something to look at; whether the task still has time."""
        deadline, now = self._trigger.deadline, time.time()
        wait = self._trigger.poll_interval if deadline is None else min(self._trigger.poll_interval, deadline - now)
        await within(max(0.0, wait), self._followed.news.wait())
        self._followed.news.clear()
        return deadline is None or time.time() < deadline

    async def _proof(self) -> None:
        """Waits until a success is seen in the run's pods too, a little."""
        from stepset.watch.cluster.status import PROOF_PATIENCE, proven

        clock = asyncio.get_running_loop().time
        late = clock() + PROOF_PATIENCE
        while not proven(self._followed.objects) and (left := late - clock()) > 0:
            await within(left, self._followed.news.wait())
            self._followed.news.clear()

    def _present(self) -> RunStatus:
        from stepset.watch.cluster.status import status_of

        objects, now = self._followed.objects, time.time()
        status = status_of(objects, self._reports, now)
        clock, silent = asyncio.get_running_loop().time(), self._followed.watch.silent_for()
        return self._keeper.judged(status, self._status, objects, now, clock, silent)

    async def _release(self) -> None:
        """Deletes the pods of lost nodes where the job says so; that another triggerer does so too is no harm."""
        from stepset.backends.kubernetes.client import UnreachableError
        from stepset.backends.kubernetes.site import Site
        from stepset.backends.kubernetes.stop import release_pod

        for pod in self._keeper.to_release(self._followed.objects, time.time(), self._followed.watch.silent_for()):
            cluster = self._followed.cluster
            try:
                await asyncio.to_thread(release_pod, Site(cluster.connection, cluster.namespace), pod.name, pod.uid)
            except UnreachableError:
                return
            self._keeper.released(pod)

    async def _tell(self, status: RunStatus, *, final: bool = True) -> None:
        """Shows a status; that of the end only once all that was printed before is known."""
        if status == self._status:
            return
        self._status = status
        if not status.phase.final or final:
            await self._handover.may_write()
            self._page.see(status)
            self._shown.on_status(status)
            self._handover.wrote()
            for callback in self._callbacks:
                await asyncio.to_thread(self._shown.call, callback, status)

    async def _event(self, late: bool) -> dict[str, Any]:
        from stepset.watch.cluster.verdict import verdict_text

        if not late and not self._keeper.gave_up:
            status = self._present()
            if status.phase.final:
                self._status = status
        status = self._status
        if status.phase.final:
            notes = tuple(dict.fromkeys((*self._followed.unseen, *status.notes, *self._logs.problems)))
            self._status = status = status.with_(notes=notes)
            self._page.see(status)
            self._shown.on_status(status)
            for callback in self._callbacks:
                await asyncio.to_thread(self._shown.call, callback, status)
        return {
            "status": json.loads(verdict_text(status)),
            "late": late and not status.phase.final,
            "gave_up": self._keeper.gave_up,
            "position": self.position,
        }


def _last_lines() -> float:
    from stepset.backends.kubernetes.hearing import LOG_PATIENCE

    return LOG_PATIENCE
