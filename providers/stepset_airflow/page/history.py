"""The history of a run for its page: the last status, phases, events, and metrics over steps. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.page.curve import Curve
from stepset_airflow.page.document import document_of, event_of

if TYPE_CHECKING:
    from stepset.run_status import Phase, RunStatus

PHASES = 60
"""Maximum phases; of a run with more, the first and the last ones are kept."""
EVENTS = 40
"""Maximum events, in the same way."""

_FIRST = 10


class RunHistory:
    """The history of a run.

    `extra_fields` are the fields of the document that are not in a status, such as the namespace. `stored` is the
    task's stored document, which is ignored if it describes another run.
    """

    def __init__(self, extra_fields: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
        from stepset.watch.present.presenter import Presenter

        self._extra_fields = dict(extra_fields)
        self._stored = stored or {}
        self._status: RunStatus | None = None
        self._presenter = Presenter()
        self._timeline: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._curve = Curve()
        self._shape: tuple[Any, ...] = ()

    @property
    def status(self) -> RunStatus | None:
        """The last status; None before the first call of `record`."""
        return self._status

    def record(self, status: RunStatus, now: float) -> bool:
        """Records a status; returns whether anything but progress and last lines has changed.

        `now` is in seconds since the epoch.
        """
        before, self._status = self._status, status
        if before is None:
            self._begin(status)
        elif before.attempt != status.attempt:
            self._curve.restarted()
        self._enter(status, now)
        reported = self._report(status, now, first=before is None)
        if status.progress is not None and (before is None or before.progress != status.progress):
            self._curve.add(status.progress)
        # A rank's last line changes with every line that it prints, so only a change of its state is urgent.
        shape = (status.trouble is None, *(row.state for row in status.ranks))
        changed, self._shape = shape != self._shape, shape
        return changed or reported

    def document(self, now: float) -> dict[str, Any]:
        """Returns the document; `record` must have been called before."""
        assert self._status is not None
        extra_fields = {**self._extra_fields, "updated": round(now, 3)}
        return document_of(self._status, self._timeline, self._events, self._curve.to_dict(), extra_fields)

    def _begin(self, status: RunStatus) -> None:
        if self._stored.get("run") == status.name:
            self._timeline = [dict(each) for each in self._stored.get("timeline", ())]
            self._events = [dict(each) for each in self._stored.get("events", ())]
            self._curve = Curve(self._stored.get("curve"))
            return
        from stepset.run_status import Phase

        pending = status.phase is Phase.PENDING
        if status.created:
            reason = status.reason if pending else ""
            self._timeline.append(_entry(status.created, Phase.PENDING, reason, status.attempt))
        if status.started:
            self._timeline.append(_entry(status.started, Phase.RUNNING, "", status.attempt))

    def _report(self, status: RunStatus, now: float, first: bool) -> bool:
        """Adds the events that no other process has stored yet; returns whether there are any."""
        from stepset.watch.present.records import FirstFailure, ProgressReported, RanksStarted

        # Other parts of the page show these.
        elsewhere = (FirstFailure, ProgressReported, RanksStarted)
        known = {event["text"] for event in self._events} if first else set()
        records = [each for each in self._presenter.see(status, now) if not isinstance(each, elsewhere)]
        events = [event_of(record, now) for record in records]
        new = [event for event in events if event["text"] not in known]
        self._events += new
        del self._events[_FIRST : _FIRST + max(0, len(self._events) - EVENTS)]
        return bool(new)

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
                self._timeline[-1] = {**entry, "at": last["at"]}  # only the reason is new
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
