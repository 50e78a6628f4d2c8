"""Collects the data that the page of a run displays: the last status, the phases, the events and the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.page.curve import Curve
from stepset_airflow.page.document import document_of, event_of, is_event_of

if TYPE_CHECKING:
    from stepset.run_status import Phase, RunStatus
    from stepset.watch.present.records import Record

PHASES = 60
"""Maximum number of phases. If a run has more phases, some phases in the middle are removed."""
EVENTS = 40
"""Maximum number of events. If a run has more events, some events in the middle are removed."""

_FIRST = 10


class RunHistory:
    """The history of a run.

    Args:
        extra_fields: additional fields of the document, such as the namespace.
        stored: the document that the task has stored. New phases, events and metrics are appended to the stored phases,
            events and metrics. If the stored document describes another run, the document is ignored.
    """

    def __init__(self, extra_fields: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
        from stepset.watch.present.presenter import Presenter

        self._extra_fields = dict(extra_fields)
        self._stored = stored or {}
        self.status: RunStatus | None = None
        """The last recorded status, or None before the first call of `record`."""
        self._presenter = Presenter()
        self._timeline: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._curve = Curve()
        self._shape: tuple[Any, ...] = ()

    def record(self, status: RunStatus, now: float) -> bool:
        """Records a status. Returns whether the change is urgent.

        A change is not urgent if only the progress or the last lines of ranks have changed. `now` is the current time
        in seconds since the epoch.
        """
        before, self.status = self.status, status
        if before is None:
            self._begin(status)
        elif before.attempt != status.attempt:
            self._curve.restarted()
        self._enter(status, now)
        reported = self._report(status, now, first=before is None)
        if status.progress is not None and (before is None or before.progress != status.progress):
            self._curve.add(status.progress)
        # The last line of a rank changes often. Therefore only a change of the rank's state is urgent.
        shape = (status.trouble is None, *(row.state for row in status.ranks))
        changed, self._shape = shape != self._shape, shape
        return changed or reported

    def document(self, now: float) -> dict[str, Any]:
        """Returns the document of the page. `record` must have been called at least once."""
        assert self.status is not None
        extra_fields = {**self._extra_fields, "updated": round(now, 3)}
        return document_of(self.status, self._timeline, self._events, self._curve.to_dict(), extra_fields)

    def _begin(self, status: RunStatus) -> None:
        if self._stored.get("run") == status.name:
            self._timeline = [dict(each) for each in self._stored.get("timeline", ())]
            self._events = [dict(each) for each in self._stored.get("events", ())]
            self._curve = Curve(self._stored.get("curve"))
            if "parameters" in self._stored:  # a triggerer cannot read the task's parameters
                self._extra_fields.setdefault("parameters", self._stored["parameters"])
            return
        from stepset.run_status import Phase

        pending = status.phase is Phase.PENDING
        if status.created:
            reason = status.reason if pending else ""
            self._timeline.append(_entry(status.created, Phase.PENDING, reason, status.attempt))
        if status.started:
            self._timeline.append(_entry(status.started, Phase.RUNNING, "", status.attempt))

    def _report(self, status: RunStatus, now: float, first: bool) -> bool:
        """Adds an event for each change that `status` shows. Returns whether any event was added.

        If `first` is True, events that another process has already stored are not added again.
        """
        from stepset.watch.present.records import FirstFailure, ProgressReported, RanksStarted

        # Other parts of the page display the content of these records.
        elsewhere = (FirstFailure, ProgressReported, RanksStarted)
        records = [each for each in self._presenter.see(status, now) if not isinstance(each, elsewhere)]
        if first:
            records = [each for each in records if not self._is_stored(each, status)]
        self._events += [event_of(record, now, status.created) for record in records]
        del self._events[_FIRST : _FIRST + max(0, len(self._events) - EVENTS)]
        return bool(records)

    def _is_stored(self, record: Record, status: RunStatus) -> bool:
        """Returns whether another process has stored the event of `record`.

        If `record` reports a problem, the function compares the texts of the record and of the event without their
        numbers and names of pods. However, if the run waits in a queue, the numbers are compared. Therefore a new
        position in the queue is a new event.
        """
        from stepset.watch.present.records import HeldUp

        if isinstance(record, HeldUp) and status.waiting is None:
            return any(is_event_of(event, record) for event in self._events)
        text = event_of(record, 0.0, status.created)["text"]
        return any(event["text"] == text for event in self._events)

    def _enter(self, status: RunStatus, now: float) -> None:
        at, phase = now, status.phase.value
        if status.phase.final:
            at = status.finished or now
        entry = _entry(at, status.phase, status.reason, status.attempt)
        if self._timeline:
            last = self._timeline[-1]
            if (last["phase"], last["reason"], last["attempt"]) == (phase, status.reason, status.attempt):
                return
            if phase == last["phase"] == "Pending" and not last["reason"]:
                self._timeline[-1] = {**entry, "at": last["at"]}  # only the reason has changed
                return
            if phase == last["phase"] == "Restarting" and status.reason == last["reason"]:
                last["attempt"] = status.attempt
                return
            if phase == "Running" and status.started and status.started > last["at"]:
                at = status.started
            entry["at"] = round(max(at, last["at"]), 3)
        self._timeline.append(entry)
        if len(self._timeline) > PHASES:
            del self._timeline[_FIRST]


def _entry(at: float, phase: Phase, reason: str, attempt: int) -> dict[str, Any]:
    from stepset.watch.present.sentences import phase_words

    state = phase_words(phase, reason)
    return {"at": round(at, 3), "phase": phase.value, "reason": reason, "state": state, "attempt": attempt}
