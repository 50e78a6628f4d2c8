"""One run as its page tells it: its last status, its phases over time, its metrics over steps. No I/O, no clock.

Filled by whoever follows the run, in whatever process; goes on where another has stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepset_airflow.page.curve import Curve
from stepset_airflow.page.document import document_of

if TYPE_CHECKING:
    from stepset.watch.state import RunStatus

PHASES = 60
"""Phases kept: of a run that restarted more often, the first and the last ones."""

_FIRST = 10


class Chronicle:
    """A run's page.

    Args:
        about: what a status does not say, such as the namespace; part of the document.
        stored: the document that was written of this task before; one of another run is passed over.
    """

    def __init__(self, about: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
        self._about = dict(about)
        self._stored = stored or {}
        self._status: RunStatus | None = None
        self._timeline: list[dict[str, Any]] = []
        self._curve = Curve()
        self._shape: tuple[Any, ...] = ()

    @property
    def status(self) -> RunStatus | None:
        """The last that was seen."""
        return self._status

    def see(self, status: RunStatus, now: float) -> bool:
        """Takes a status.

        Args:
            status: of the run.
            now: seconds since the epoch.

        Returns:
            Whether more has changed than progress and last lines.
        """
        before, self._status = self._status, status
        if before is None:
            self._begin(status)
        elif before.attempt != status.attempt:
            self._curve.restarted()
        self._enter(status, now)
        if status.progress is not None and (before is None or before.progress != status.progress):
            self._curve.add(status.progress)
        # Ranks that tell their progress change with every line: what is urgent is what they are.
        shape = (status.phase, status.reason, status.attempt, status.trouble is None, *(r.state for r in status.ranks))
        changed, self._shape = shape != self._shape, shape
        return changed

    def document(self, now: float) -> dict[str, Any]:
        """What the page shows; something must have been seen.

        Args:
            now: seconds since the epoch.
        """
        assert self._status is not None
        about = {**self._about, "updated": round(now, 3)}
        return document_of(self._status, self._timeline, self._curve.to_dict(), about)

    def _begin(self, status: RunStatus) -> None:
        if self._stored.get("run") == status.name:
            self._timeline = [dict(each) for each in self._stored.get("timeline", ())]
            self._curve = Curve(self._stored.get("curve"))
            return
        waits = status.phase.value == "Pending"
        if status.created:
            self._timeline.append(_entry(status.created, "Pending", status.reason if waits else "", status.attempt))
        if status.started:
            self._timeline.append(_entry(status.started, "Running", "", status.attempt))

    def _enter(self, status: RunStatus, now: float) -> None:
        at, phase = now, status.phase.value
        if status.phase.final:
            at = status.finished or now
        entry = _entry(at, phase, status.reason, status.attempt)
        if self._timeline:
            last = self._timeline[-1]
            if (last["phase"], last["reason"], last["attempt"]) == (phase, status.reason, status.attempt):
                return
            if phase == last["phase"] == "Pending" and not last["reason"]:
                last.update(reason=status.reason, attempt=status.attempt)  # nobody had looked before
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


def _entry(at: float, phase: str, reason: str, attempt: int) -> dict[str, Any]:
    return {"at": round(at, 3), "phase": phase, "reason": reason, "attempt": attempt}
