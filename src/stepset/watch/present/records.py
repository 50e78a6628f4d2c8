"""The records that an interface shows of a run, one for each event. Pure.

An interface chooses the destination, colour and prefix of a record, never its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepset.run_status import RunStatus
from stepset.watch.present.sentences import queue_sentence, trouble_sentence, what_happened


@dataclass(frozen=True, slots=True)
class Record:
    """An event of a run."""

    text: str
    level: Literal["info", "warning"] = "info"  # `warning` if a user may have to react


class Note(Record):
    """A note about the run."""


class Restarted(Record):
    """The run, or a single pod of it, was restarted."""


class PhaseChanged(Record):
    """The phase of the run, or its reason, has changed."""


class RanksStarted(Record):
    """More ranks are running while the run waits for the others."""


class ProgressReported(Record):
    """The training reported its progress."""


@dataclass(frozen=True, slots=True)
class HeldUp(Record):
    """The run waits in a queue, or a problem delays it: no room, no image, a missing Secret, a lost node.

    `rows` are the titles and texts of a table: the problem first, then `advice` if there is any. Of records with the
    same text and the same `about` (queue, pod or node), only the first is new.
    """

    rows: tuple[tuple[str, str], ...] = ()
    about: str = ""


class LinesOmitted(Record):
    """Lines that followed the first failure were not shown."""


class RunEnded(Record):
    """The run is over; a warning unless it succeeded."""


class FirstFailure(Record):
    """Why the run failed: what failed first, its error, its last lines, what to do."""


def held_up(status: RunStatus) -> HeldUp | None:
    """The problem that keeps a run from making progress; None if there is none."""
    waiting, trouble = status.waiting, status.trouble
    if status.phase.final or (waiting is None and trouble is None):
        return None
    if waiting is not None:
        why = queue_sentence(waiting)
        level: Literal["info", "warning"] = "warning" if waiting.inadmissible else "info"
        return HeldUp(f"queued: {why}", level, (("queued", why),), waiting.queue)
    assert trouble is not None
    rows = (("trouble", what_happened(trouble)), ("events", "; ".join(trouble.events)), ("advice", trouble.advice))
    known = tuple((title, text) for title, text in rows if text)
    return HeldUp(trouble_sentence(trouble), "warning", known, f"{trouble.pod} {trouble.node}")
