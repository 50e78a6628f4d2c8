"""Keeps a run's RunStatus up to date from the reports of its agents. No I/O and no clock."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepset.backends.local.layout import PodSpec
from stepset.backends.local.rank_states import FAILED, PENDING, RUNNING, STOPPED, SUCCEEDED
from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.plan.ranks import rank_ranges
from stepset.run_status import Failure, Phase, Progress, RankStatus, RunStatus
from stepset.watch.agent_events import checkpoint_of, read_events
from stepset.watch.lines import TOO_MANY_METRICS, merge_progress
from stepset.watch.present.sentences import resume_sentence
from stepset.watch.rank_mark import without_rank_mark


class Tracker:
    """The status of one run, from its first attempt to its verdict; the caller resets `changed`."""

    def __init__(self, plan: LaunchPlan, status: RunStatus) -> None:
        self._plan = plan
        self._status = status
        self._rows: dict[str, RankStatus] = {}
        self.changed = True

    def status(self, last_line: Callable[[str], str]) -> RunStatus:
        """Returns the status; `last_line` maps a source to the last line it printed."""
        rows = sorted(self._rows.values(), key=lambda row: (row.rank is None, row.rank or 0))

        def shown(row: RankStatus) -> RankStatus:
            return replace(row, last_line=without_rank_mark(row.source, last_line(row.source)))

        return self._status.with_(ranks=tuple(map(shown, rows)))

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
        """Begins an attempt: every row is Pending; rows that started in the previous attempt have one more restart."""
        restarts = {source: row.restarts + 1 for source, row in self._rows.items() if row.state != PENDING}
        self._rows = {
            row.source: replace(row, restarts=restarts.get(row.source, row.restarts))
            for spec in specs
            for row in _rows_of(self._plan, self._plan.group(spec.group), spec)
        }
        self.set(attempt=attempt)

    def pod_started(self, spec: PodSpec, now: float) -> None:
        """Records that a pod's agent runs; the run is Running once a pod of the group that decides its success runs."""
        if row := self._rows.get(spec.source):
            self._rows[spec.source] = replace(row, state=RUNNING)
            self.changed = True
        if spec.group == self._plan.success.group and self.phase is not Phase.RUNNING:
            self.set(phase=Phase.RUNNING, reason="", started=self._status.started or now)

    def event(self, spec: PodSpec, event: Mapping[str, Any], stopped: bool) -> None:
        """Records an agent's report of its ranks (docs/design/agent.md); `stopped`: the pod's end was requested."""
        for checkpoint in filter(None, map(checkpoint_of, read_events([event]))):
            self._note(resume_sentence(*checkpoint, self._status.created))
        rank = event.get("rank")
        if not isinstance(rank, int) or event["event"] not in ("started", "exited"):
            return
        source = f"rank {rank}"
        row = self._rows.get(source) or RankStatus(source, rank, spec.name)
        if event["event"] == "started":
            again = row.state not in (PENDING, RUNNING)
            # If the number of ranks is unknown, the pod's row represents them until they start.
            if spec.group == NODE:
                self._rows.pop(spec.source, None)
            row = replace(
                row,
                pod=spec.name,
                node=spec.address,
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
        """Records that a pod's agent, and so each of its ranks, has ended; the code is negative for a signal."""
        state = _end_state(exit_code == 0, stopped)
        for row in list(self._rows.values()):
            if row.source == spec.source:
                number = -exit_code if exit_code < 0 else None
                code = exit_code if exit_code >= 0 else None
                self._rows[row.source] = replace(row, state=state, exit_code=code, signal=number)
            elif row.pod == spec.name and row.state in (PENDING, RUNNING):
                self._rows[row.source] = replace(row, state=state)
        self.changed = True

    def progress(self, reported: Progress) -> None:
        """Records progress that the training code reported."""
        progress, notes = merge_progress(self._status.progress, reported), self._status.notes
        if TOO_MANY_METRICS not in notes and reported.metrics.keys() - progress.metrics.keys():
            notes = (*notes, TOO_MANY_METRICS)
        self.set(progress=progress, notes=notes)

    def _note(self, note: str) -> None:
        if note not in self._status.notes:
            self.set(notes=(*self._status.notes, note))

    def end(self, failure: Failure | None) -> None:
        """Ends the attempt: rows that wait or run, and ranks that failed as a consequence only, become Stopped."""
        aftermath = set(failure.aftermath) if failure else set()
        for row in list(self._rows.values()):
            was_stopped = row.source in aftermath and row.signal in (signal.SIGTERM, signal.SIGKILL, None)
            if row.state in (PENDING, RUNNING) or (row.state == FAILED and was_stopped and not row.exit_code):
                self._rows[row.source] = replace(row, state=STOPPED)
        self.changed = True


def _end_state(succeeded: bool, stopped: bool) -> str:
    if stopped:
        return STOPPED
    return SUCCEEDED if succeeded else FAILED


def _rows_of(plan: LaunchPlan, group: PodGroup, spec: PodSpec) -> list[RankStatus]:
    """Returns the rows of a pod: its ranks if they are known, else the pod; an MPI launcher has both."""
    own = RankStatus(spec.source, None, spec.name, spec.address)
    held = rank_ranges(plan).get(group.name)
    if held is None:
        return [own]
    first = held.first + spec.index * held.per_pod
    rows = [RankStatus(f"rank {n}", n, spec.name, spec.address) for n in range(first, first + held.per_pod)]
    return rows if group.name == NODE else [*rows, own]
