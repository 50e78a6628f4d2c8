"""Derives new records from the statuses of a run. Pure.

An interface has one presenter for each run that it follows. The presenter's state is plain data (`presented`), with
which another process can continue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from stepset.run_status import LogLine, Phase, Progress, RunStatus
from stepset.watch.lines import OpenLine
from stepset.watch.present.failure_report import failure_lines
from stepset.watch.present.records import (
    FirstFailure,
    LinesOmitted,
    Note,
    PhaseChanged,
    ProgressReported,
    RanksStarted,
    Record,
    Restarted,
    RunEnded,
    held_up,
)
from stepset.watch.present.sentences import (
    end_sentence,
    is_restart,
    omitted_sentence,
    phase_sentence,
    progress_words,
    ranks_in_state,
)

PROGRESS_EVERY = 1.0
"""Seconds between two reports of progress; the last report is always presented."""
OPEN_LINE_EVERY = 10.0
"""Seconds between two states of an incomplete line in a log, and before the first one."""
STARTING_EVERY = 10.0
"""Seconds between two records of how many ranks have started, and before the first one."""

_KEPT = 50
"""Number of reasons for waiting that are remembered; each attempt of a run may add some."""
_NUMBER = re.compile(r"\d+")


class Presenter:
    """Presents one run; `presented` is the state of an earlier presenter.

    `verbose` is whether lines after the first failure are shown.
    """

    def __init__(self, presented: Mapping[str, Any] | None = None, *, verbose: bool = False) -> None:
        before = presented or {}
        self._phase = str(before.get("phase", ""))
        self._notes: set[str] = set(before.get("notes", ()))
        self._waiting: dict[str, None] = dict.fromkeys(before.get("waiting", ()))
        self._position: int | None = before.get("position")
        progress = before.get("progress")
        self._progress = None if progress is None else Progress(**progress)
        self._progress_at = float("-inf")
        self._started, self._started_at = 0, float("inf")
        self._verbose, self._attempt = verbose, 0
        self._omitted = int(before.get("omitted", 0))
        self._open_lines: dict[str, float] = {}  # source -> when a state of its incomplete line was last due

    @property
    def presented(self) -> dict[str, Any]:
        """What was presented so far, as plain data."""
        return {
            "phase": self._phase,
            "notes": sorted(self._notes),
            "progress": None if self._progress is None else asdict(self._progress),
            "waiting": list(self._waiting),
            "position": self._position,
            "omitted": self._omitted,
        }

    @property
    def progress(self) -> Progress | None:
        """The progress that was presented last."""
        return self._progress

    def see(self, status: RunStatus, clock: float) -> list[Record]:
        """Returns the new records, and those that a rate limit has delayed; `clock` is monotonic, in seconds."""
        notes = [record for note in status.notes for record in self.note(note)]
        if status.phase.final:
            end = [*self._new_omitted(status), *self._new_phase(status, clock)]
            return [*notes, *self._new_progress(status, clock), *end]
        if status.attempt != self._attempt:
            self._attempt = status.attempt
            notes += self._new_omitted(status)
        change = [*self._new_phase(status, clock), *self._new_reason(status)]
        return [*notes, *change, *self._more_ranks(status, clock), *self._new_progress(status, clock)]

    def shows(self, line: LogLine) -> bool:
        """Whether a line is shown; counts the others, for a record of `see`."""
        self._open_lines.pop(line.source, None)
        if line.aftermath and not self._verbose:
            self._omitted += 1
            return False
        return True

    def shows_open(self, line: OpenLine, clock: float) -> bool:
        """Whether a log shows the state of an incomplete line."""
        due = clock - self._open_lines.setdefault(line.source, clock) >= OPEN_LINE_EVERY
        if due:
            self._open_lines[line.source] = clock
        return due

    def note(self, note: str) -> list[Record]:
        """The record of a note of RunStatus, or of the interface; empty if it was presented before."""
        if note in self._notes:
            return []
        self._notes.add(note)
        return [(Restarted if is_restart(note) else Note)(note, "warning")]

    def _new_progress(self, status: RunStatus, clock: float) -> Iterator[Record]:
        due = status.phase.final or clock - self._progress_at >= PROGRESS_EVERY
        words = progress_words(status.progress)  # empty if no value of a report was a finite number
        if words and status.progress != self._progress and due:
            self._progress, self._progress_at = status.progress, clock
            yield ProgressReported(f"progress: {words}")

    def _new_omitted(self, status: RunStatus) -> list[Record]:
        count, self._omitted = self._omitted, 0
        return [LinesOmitted(omitted_sentence(count, status))] if count else []

    def _new_phase(self, status: RunStatus, clock: float) -> Iterator[Record]:
        phase = phase_sentence(status)
        if phase == self._phase:
            return
        self._phase = phase
        self._started, self._started_at = 0, clock
        if not status.phase.final:
            yield PhaseChanged(phase)
            return
        yield RunEnded(end_sentence(status), "info" if status.phase is Phase.SUCCEEDED else "warning")
        if status.failure is not None:
            yield FirstFailure("\n".join(failure_lines(status.failure)), "warning")

    def _more_ranks(self, status: RunStatus, clock: float) -> Iterator[Record]:
        if status.phase not in (Phase.PENDING, Phase.RESTARTING) or clock - self._started_at < STARTING_EVERY:
            return
        running, total, what = ranks_in_state(status, "Running")
        if running and running != self._started:
            self._started, self._started_at = running, clock
            yield RanksStarted(f"starting: {running}/{total} {what} running")

    def _new_reason(self, status: RunStatus) -> Iterator[Record]:
        held, waiting = held_up(status), status.waiting
        if held is None or (waiting is not None and not waiting.message and waiting.position is None):
            return  # the queue reports its reason soon
        # A sentence that differs only in numbers (a duration, a missing amount) is not new.
        key = f"{held.about} {_NUMBER.sub('0', held.text)}"
        position = self._position if waiting is None or waiting.position is None else waiting.position
        if key not in self._waiting or position != self._position:
            self._waiting[key], self._position = None, position
            if len(self._waiting) > _KEPT:
                del self._waiting[next(iter(self._waiting))]
            yield held
