"""What an interface reports of a run: one frozen record for each thing that happened. Made by presenter.py. Pure.

An interface decides where it writes a record, in which colour and behind which prefix; it words none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepset.watch.present.sentences import queue_sentence, trouble_sentence, what_happened
from stepset.watch.state import RunStatus


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened in a run.

    Args:
        text: the sentence.
        level: `warning` for what a user may have to react to.
    """

    text: str
    level: Literal["info", "warning"] = "info"


class Note(Record):
    """A remark on the run."""

    __slots__ = ()


class Restarted(Record):
    """The run, or a single pod of it, was started again."""

    __slots__ = ()


class PhaseChanged(Record):
    """The run is in another phase, or in the same one for another reason."""

    __slots__ = ()


class RanksStarted(Record):
    """More of the ranks are running, while the run waits for the others."""

    __slots__ = ()


class ProgressReported(Record):
    """The training reported its progress."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HeldUp(Record):
    """The run waits in a queue, or something keeps it from going on: no room, no image, a missing Secret, a lost node.

    Args:
        rows: titles and texts of a table about the run: what it is first, `advice` where there is some.
        about: queue, pod or node; of two records about the same with the same words, only the first is news.
    """

    rows: tuple[tuple[str, str], ...] = ()
    about: str = ""


class RunEnded(Record):
    """The run is over; a warning unless it succeeded."""

    __slots__ = ()


class FirstFailure(Record):
    """What is known of why the run failed: who failed first, its error, its last lines, what to do."""

    __slots__ = ()


def held_up(status: RunStatus) -> HeldUp | None:
    """What keeps a run from going on at present; None where nothing does."""
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
