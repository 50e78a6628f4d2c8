"""What an interface reports of a run: one frozen record for each thing that happened. Pure.

An interface chooses the destination, colour and prefix of a record, never its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepset.watch.present.sentences import queue_sentence, trouble_sentence, what_happened
from stepset.watch.state import RunStatus


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened in a run."""

    text: str
    level: Literal["info", "warning"] = "info"  # `warning` if a user may have to react


class Note(Record):
    """A remark on the run."""


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
    """The run waits in a queue, or something keeps it from going on: no room, no image, a missing Secret, a lost node.

    Args:
        rows: titles and texts of a table about the run: the problem first, `advice` if there is some.
        about: queue, pod or node; of two records with the same words about the same one, only the first is new.
    """

    rows: tuple[tuple[str, str], ...] = ()
    about: str = ""


class RunEnded(Record):
    """The run is over; a warning unless it succeeded."""


class FirstFailure(Record):
    """Why the run failed: who failed first, its error, its last lines, what to do."""


def held_up(status: RunStatus) -> HeldUp | None:
    """What keeps a run from going on; None if nothing does."""
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
