"""Updates the `RunStatus` of a run from the reports of its agents. Uses no I/O and no clock."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepset.backends.local.layout import PodSpec
from stepset.backends.local.rank_states import FAILED, PENDING, RUNNING, STOPPED, SUCCEEDED
from stepset.hang import Hang
from stepset.plan.model import LAUNCHER, NODE, LaunchPlan, PodGroup
from stepset.plan.ranks import rank_ranges
from stepset.plan.secret_variables import secret_variables
from stepset.run_status import Failure, Phase, RankStatus, RunStatus
from stepset.watch.cluster.reports import Reports
from stepset.watch.hangs.joins import with_slow
from stepset.watch.hangs.stalled import KnownHang, with_hang
from stepset.watch.lines import Batch
from stepset.watch.present.sentences import alone_sentence, resume_sentence
from stepset.watch.rank_mark import without_rank_mark
from stepset.watch.tracebacks import stuck_note, stuck_rank


class Tracker:
    """The status of one run, from its first attempt to its verdict.

    Attributes:
        changed: whether the status has changed since the caller last set this attribute to False.
        has_secrets: whether the output of the ranks may contain values that must not be stored.
    """

    def __init__(self, plan: LaunchPlan, status: RunStatus) -> None:
        self._plan = plan
        self.has_secrets = bool(secret_variables(plan))
        self._mpi = any(group.name == LAUNCHER for group in plan.groups)
        self._status = status
        self._rows: dict[str, RankStatus] = {}
        self._reports, self._known_hang = Reports(), KnownHang()
        self.changed = True

    def status(self, last_line: Callable[[str], tuple[str, float | None]]) -> RunStatus:
        """Returns the status. `last_line` returns the last line that a source printed, and the time of the line."""
        rows = sorted(self._rows.values(), key=lambda row: (row.rank is None, row.rank or 0))

        def shown(row: RankStatus) -> RankStatus:
            text, at = last_line(row.source)
            return replace(row, last_line=without_rank_mark(row.source, text), last_line_at=at)

        known = self._status.with_(ranks=tuple(map(shown, rows)))
        return with_slow(self._with_hang(known), self._reports.joins, _pods(known))

    def _with_hang(self, status: RunStatus) -> RunStatus:
        stalled = self._reports.stalled
        return with_hang(status, stalled.of(status.ranks, _pods(status))) if stalled else status

    def output(self, spec: PodSpec, batch: Batch, now: float) -> None:
        """Records the output of a pod.

        Must be called after `event` was called for the events of the output. `now` is in seconds since the epoch.
        """
        reports = self._reports
        if reports.see(spec.name, batch):
            rows = tuple(self._rows.values())
            self._known_hang.see(self._with_hang(self._status.with_(ranks=rows)).hang, now)
            self.changed = True
        if batch.progress:
            self.set(progress=reports.progress, points=reports.points)
        resumes = (resume_sentence(*reports.checkpoint, self._status.created),) if reports.checkpoint else ()
        for note in (*reports.notes, *resumes):
            self._note(note)

    def tail(self, source: str) -> tuple[str, ...]:
        """Returns the last lines of a source. Secrets are redacted, and long lines are truncated."""
        report = self._reports.printers.get(source)
        return report.tail(source) if report is not None else ()

    def last_line(self, source: str) -> tuple[str, float | None]:
        """Returns the last line of a source, and the time of its last output in seconds since the epoch.

        Progress reports and the states of incomplete lines are output, but not lines. The line is "" if there is no
        line. The time is None if there is no output.
        """
        report = self._reports.printers.get(source)
        return (report.last_line(source), report.printed_at.get(source)) if report is not None else ("", None)

    @property
    def result(self) -> Any:
        """The result that rank 0 has reported in this attempt."""
        return next(iter(self._reports.result(row.pod for row in self._rows.values())), None)

    def known_hang(self, now: float, failure: Failure | None = None) -> Hang | None:
        """Returns the hang of the current attempt that was known until a moment ago.

        If there is a failure, this may be the hang that the agents have found before they stopped their ranks.
        """
        rows = tuple(self._rows.values())
        stopped = self._reports.stalled.before_stop(rows, {row.pod: row.pod for row in rows}, failure)
        return stopped or self._known_hang.at(now)

    def set(self, **changes: Any) -> None:
        """Changes fields of the status."""
        self._status = self._status.with_(**changes)
        self.changed = True

    @property
    def notes(self) -> tuple[str, ...]:
        return self._status.notes

    @property
    def phase(self) -> Phase:
        return self._status.phase

    def begin(self, specs: Sequence[PodSpec], attempt: int) -> None:
        """Begins an attempt. All rows become Pending.

        Adds one to the number of restarts in each row whose rank or pod started in the previous attempt.
        """
        restarts = {source: row.restarts + 1 for source, row in self._rows.items() if row.state != PENDING}
        self._rows = {
            row.source: replace(row, restarts=restarts.get(row.source, row.restarts))
            for spec in specs
            for row in _rows_of(self._plan, self._plan.group(spec.group), spec)
        }
        self._reports.clear()
        self._known_hang.clear()
        self.set(attempt=attempt, hang=None)

    def pod_started(self, spec: PodSpec, now: float) -> None:
        """Records that a pod's agent runs.

        One group of pods decides whether the run succeeds. The run becomes Running when a pod of this group has
        started.
        """
        if row := self._rows.get(spec.source):
            self._rows[spec.source] = replace(row, state=RUNNING)
            self.changed = True
        if spec.group == self._plan.success.group and self.phase is not Phase.RUNNING:
            self.set(phase=Phase.RUNNING, reason="", started=self._status.started or now)

    def event(self, spec: PodSpec, event: Mapping[str, Any], stopped: bool) -> None:
        """Records an event in which an agent reports about its ranks (docs/design/agent.md).

        Args:
            stopped: whether the supervisor has asked the pod to stop.
        """
        rank = event.get("rank")
        if not isinstance(rank, int) or event["event"] not in ("started", "exited"):
            return
        source = f"rank {rank}"
        row = self._rows.get(source) or RankStatus(source, rank, spec.name)
        if event["event"] == "started":
            again = row.state not in (PENDING, RUNNING)
            # If the number of ranks is unknown, the row of the pod represents the ranks until they start.
            if spec.group == NODE:
                self._rows.pop(spec.source, None)
            row = replace(
                row,
                pod=spec.name,
                node=spec.node,
                state=RUNNING,
                restarts=row.restarts + again,
                exit_code=None,
                signal=None,
            )
        else:
            code, number = event.get("exit_code"), event.get("signal")
            row = replace(row, state=_end_state(code == 0, stopped), exit_code=code, signal=number)
        self._rows[source] = row
        self.changed = True

    def pod_ended(self, spec: PodSpec, exit_code: int, stopped: bool) -> None:
        """Records that a pod's agent and all ranks of the pod have exited.

        If a signal terminated the agent, `exit_code` is the negative number of the signal.
        """
        state = _end_state(exit_code == 0, stopped)
        for row in list(self._rows.values()):
            if row.source == spec.source:
                number = -exit_code if exit_code < 0 else None
                code = exit_code if exit_code >= 0 else None
                self._rows[row.source] = replace(row, state=state, exit_code=code, signal=number)
            elif row.pod == spec.name and row.state in (PENDING, RUNNING):
                self._rows[row.source] = replace(row, state=state)
        self.changed = True

    def note_stuck_rank(
        self, status: Callable[[], RunStatus], tail: Callable[[str], Sequence[str]], now: float
    ) -> None:
        """In an MPI job, adds a note about a rank that has printed a traceback and has not exited.

        Python ranks of MPI jobs wait in MPI_Finalize for the other ranks before they exit.

        Args:
            status: a function that returns the current status.
            tail: a function that returns the last lines of a source.
            now: the current time, in seconds since the epoch.
        """
        if self._mpi and (stuck := stuck_rank(status(), tail, now)):
            self._note(stuck_note(stuck[0].source))

    def _note(self, note: str) -> None:
        if note not in self._status.notes:
            self.set(notes=(*self._status.notes, note))

    def end(self, failure: Failure | None) -> None:
        """Ends the attempt. Waiting and running ranks become Stopped.

        If a rank failed only as a consequence of the failure, this rank becomes Stopped, too. A rank that failed with
        the same error as the first rank becomes Failed.
        """
        aftermath = set(failure.aftermath) if failure else set()
        same = set(failure.same_error) if failure else set()
        for row in list(self._rows.values()):
            if row.source in same:
                self._rows[row.source] = replace(row, state=FAILED)
                continue
            was_stopped = row.source in aftermath and row.signal in (signal.SIGTERM, signal.SIGKILL, None)
            if row.state in (PENDING, RUNNING) or (row.state == FAILED and was_stopped and not row.exit_code):
                self._rows[row.source] = replace(row, state=STOPPED)
        self.changed = True
        alone = 0 if failure is not None else self._reports.alone({row.pod for row in self._rows.values()})
        if alone > 1 and alone == self._status.world_size:
            self._note(alone_sentence(alone))


def _pods(status: RunStatus) -> dict[str, str]:
    """Returns the key of each pod, which is its name."""
    return {row.pod: row.pod for row in status.ranks}


def _end_state(succeeded: bool, stopped: bool) -> str:
    if stopped:
        return STOPPED
    return SUCCEEDED if succeeded else FAILED


def _rows_of(plan: LaunchPlan, group: PodGroup, spec: PodSpec) -> list[RankStatus]:
    """Returns one row for each rank of a pod. If the ranks are not known, returns one row for the pod.

    A pod outside the group of nodes always has a row of its own. An example is the launcher of MPI.
    """
    own = RankStatus(spec.source, None, spec.name, spec.node)
    held = rank_ranges(plan).get(group.name)
    if held is None:
        return [own]
    first = held.first + spec.index * held.per_pod
    rows = [RankStatus(f"rank {n}", n, spec.name, spec.node) for n in range(first, first + held.per_pod)]
    return rows if group.name == NODE else [*rows, own]
