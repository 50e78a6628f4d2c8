"""Derives new records from the statuses of a run. Uses no I/O and no clock.

An interface has one presenter for each run that it follows. The presenter's state is plain data (`presented`). Another
process can continue with this data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from stepset.run_status import LogLine, Phase, Progress, RunStatus
from stepset.watch.lines import OpenLine
from stepset.watch.present.failure_report import failure_lines
from stepset.watch.present.hang import has_failed_rank, progress_again, slow_words
from stepset.watch.present.places import ranks_named
from stepset.watch.present.records import (
    FirstFailure,
    HangReported,
    LinesOmitted,
    Note,
    PhaseChanged,
    ProgressAgain,
    ProgressReported,
    RanksStarted,
    Record,
    Restarted,
    RunEnded,
    hang_reported,
    held_up,
    new_position,
    place_of_hang,
)
from stepset.watch.present.sentences import (
    command_for,
    end_sentence,
    is_restart,
    is_resume,
    omitted_sentence,
    phase_sentence,
    progress_words,
    ranks_in_state,
)

PROGRESS_EVERY = 1.0
"""The number of seconds between two reports of progress. The last report is always presented."""
OPEN_LINE_EVERY = 10.0
"""The number of seconds before the first state of an incomplete line is logged, and between two such states."""
STARTING_EVERY = 10.0
"""The number of seconds before the first record of how many ranks have started, and between two such records."""

PROGRESS_AFTER = 10.0
"""The number of seconds without a hang after which a run makes progress again."""
LONGER = 1.9
"""A hang is presented again when its pause has become this many times as long. Agents report it again after twice the
time."""

_KEPT = 50
"""The number of reasons for waiting that are stored. Each attempt of a run may add further reasons."""


class Presenter:
    """Presents one run.

    Args:
        presented: the state of an earlier presenter of this run, or None.
        verbose: whether lines that follow the first failure are shown.
        logs: a function that returns how a user can read the lines of a run; default: the command.
        flags: the flags in the commands (`command_for`).
    """

    def __init__(
        self,
        presented: Mapping[str, Any] | None = None,
        *,
        verbose: bool = False,
        logs: Callable[[RunStatus], str] | None = None,
        flags: str | None = None,
    ) -> None:
        before = presented or {}
        self._phase = str(before.get("phase", ""))
        self._notes: set[str] = set(before.get("notes", ()))
        self._waiting: dict[str, None] = dict.fromkeys(before.get("waiting", ()))
        self._position: int | None = before.get("position")
        hang = before.get("hang") or {}
        self._hang: str = str(hang.get("place", ""))  # the hang that was presented last, or "" if there is none
        self._silent, self._hang_at = float(hang.get("silent", 0.0)), float("nan")
        self._progress_since = float("inf")  # when the presented hang was no longer in the status
        progress = before.get("progress")
        self._progress = None if progress is None else Progress(**progress)
        self._progress_at = float("-inf")
        self._started, self._started_at = 0, float("inf")
        self._verbose, self._attempt, self._flags = verbose, 0, flags
        self._logs = logs or partial(command_for, "logs", flags=flags)
        self._omitted = int(before.get("omitted", 0))
        self._open_lines: dict[str, float] = {}  # source -> when its incomplete line was first seen or last shown

    @property
    def presented(self) -> dict[str, Any]:
        """The presenter's state, as plain data."""
        return {
            "phase": self._phase,
            "notes": sorted(self._notes),
            "progress": None if self._progress is None else asdict(self._progress),
            "waiting": list(self._waiting),
            "position": self._position,
            "hang": {"place": self._hang, "silent": self._silent} if self._hang else None,
            "omitted": self._omitted,
        }

    @property
    def progress(self) -> Progress | None:
        """The progress that was presented last."""
        return self._progress

    def see(self, status: RunStatus, clock: float) -> list[Record]:
        """Returns the new records, and the delayed records that are now due.

        `clock` is the time of a monotonic clock, in seconds. A record is delayed if its kind has a minimum interval.
        """
        notes = [record for note in status.notes for record in self.note(note)]
        notes += self._new_slow(status)
        if status.phase.final:
            end = [*self._new_omitted(status), *self._new_phase(status, clock)]
            return [*notes, *self._new_progress(status, clock), *end]
        if status.attempt != self._attempt:
            self._attempt, self._hang = status.attempt, ""
            notes += self._new_omitted(status)
        change = [*self._new_phase(status, clock), *self._new_reason(status), *self._new_hang(status, clock)]
        return [*notes, *change, *self._more_ranks(status, clock), *self._new_progress(status, clock)]

    def shows(self, line: LogLine) -> bool:
        """Returns whether a line is shown. Counts the omitted lines, so that `see` can report their number."""
        self._open_lines.pop(line.source, None)
        if line.aftermath and not self._verbose:
            self._omitted += 1
            return False
        return True

    def shows_open(self, line: OpenLine, clock: float) -> bool:
        """Returns whether the current state of an incomplete line is due to be logged."""
        due = clock - self._open_lines.setdefault(line.source, clock) >= OPEN_LINE_EVERY
        if due:
            self._open_lines[line.source] = clock
        return due

    def note(self, note: str) -> list[Record]:
        """Returns the record of a note. Returns an empty list if the note is not new.

        The note comes from RunStatus or from the interface.
        """
        if note in self._notes:
            return []
        self._notes.add(note)
        kind = Restarted if is_restart(note) else Note
        return [kind(note, "info" if is_resume(note) else "warning")]

    def _new_slow(self, status: RunStatus) -> list[Record]:
        """Returns the record of the ranks that the others wait for. There is one record for the same ranks."""
        slow = status.slow
        if slow is None or (key := f"slow: {ranks_named(slow.ranks)}") in self._notes:
            return []
        self._notes.add(key)
        return self.note(slow_words(slow))

    def _new_progress(self, status: RunStatus, clock: float) -> Iterator[Record]:
        due = status.phase.final or clock - self._progress_at >= PROGRESS_EVERY
        words = progress_words(status.progress)  # empty if the reports contained no finite number
        if words and status.progress != self._progress and due:
            self._progress, self._progress_at = status.progress, clock
            yield ProgressReported(f"progress: {words}")

    def _new_omitted(self, status: RunStatus) -> list[Record]:
        count, self._omitted = self._omitted, 0
        return [LinesOmitted(omitted_sentence(count, status, self._logs(status)))] if count else []

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
        held, waiting = held_up(status, self._flags), status.waiting
        if held is None or isinstance(held, HangReported):
            return
        if waiting is not None and not waiting.message and waiting.position is None:
            return  # the queue will soon report a reason
        key = f"{status.attempt} {held.cause}"
        # The sentence about a run that the queue can never admit contains no position.
        position = self._position if waiting is None or waiting.inadmissible else waiting.position
        moved = position is not None and position != self._position
        if key not in self._waiting:
            self._waiting[key] = None
            if len(self._waiting) > _KEPT:
                del self._waiting[next(iter(self._waiting))]
            yield held
        elif moved and waiting is not None:
            yield new_position(held, waiting)
        self._position = position if moved else self._position

    def _new_hang(self, status: RunStatus, clock: float) -> Iterator[Record]:
        """Yields a hang that is new or has lasted twice as long, or the record that the run makes progress again.

        The output and the exits of ranks that are being stopped look like progress at first. Therefore the second
        record comes after PROGRESS_AFTER seconds, and only if all ranks still run or have succeeded.
        """
        reported, hang = hang_reported(status, self._flags), status.hang
        if self._hang_at != self._hang_at:  # another process has presented the hang, at an unknown time
            self._hang_at = clock
        if reported is None or hang is None:
            self._progress_since = min(self._progress_since, clock)
            if self._hang and clock - self._progress_since >= PROGRESS_AFTER and not has_failed_rank(status):
                yield ProgressAgain(progress_again(self._silent + self._progress_since - self._hang_at))
                self._hang = ""
            return
        self._progress_since = float("inf")
        place = place_of_hang(hang)
        if place != self._hang or hang.silent >= LONGER * self._silent:
            self._hang, self._silent, self._hang_at = place, hang.silent, clock
            yield reported
