"""The records that an interface shows. There is one record for each event of a run.

An interface can choose the destination, the colour and the prefix of a record. An interface cannot change the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from stepset.hang import Hang
from stepset.run_status import RunStatus, Waiting
from stepset.watch.present.hang import hang_lines, hang_rows
from stepset.watch.present.places import ranks_named
from stepset.watch.present.sentences import queue_sentence, trouble_sentence, what_happened

_PLACE = 1000
"""The maximum number of characters of the result of `place_of_hang`, which a triggerer stores."""
_VARIABLE = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bpod [a-z0-9][a-z0-9.-]*(?: on [a-z0-9][a-z0-9.-]*)?(?: and \d+ more)?", "pod"),
        # A name that Kubernetes has generated (apimachinery pkg/util/rand: neither vowels nor 0, 1 and 3).
        (r"\b[a-z0-9][a-z0-9.-]*-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "NAME"),
        (r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "UID"),
        (r'ImagePullBackOff: Back-off pulling image "[^"]*": ', ""),
        (r" at position \d+", ""),  # of a run in a queue
        (r"(?<![\w.-])\d[\w.]*", "0"),  # a number with its unit, such as 1m20s
    )
]


@dataclass(frozen=True, slots=True)
class Record:
    """An event of a run."""

    text: str
    level: Literal["info", "warning"] = "info"  # `warning` if the user may have to react

    @property
    def lines(self) -> list[str]:
        """The lines of the text. Only a diagnosis and the report of a hang have several lines."""
        return [self.text]


class Note(Record):
    """A note about the run."""


class Restarted(Record):
    """The run, or a single pod of it, was restarted."""


class PhaseChanged(Record):
    """The phase of the run, or its reason, has changed."""


class RanksStarted(Record):
    """More ranks are running. The run still waits for other ranks."""


class ProgressReported(Record):
    """The training reported its progress."""


@dataclass(frozen=True, slots=True)
class HeldUp(Record):
    """The run waits in a queue, or a problem delays the run. Examples are a missing Secret and a lost node.

    If several records in one attempt of the run have the same `cause`, only the first record is new.

    Args:
        rows: the titles and texts of a table. The problem is the first row. If there is advice, it is the next row.
    """

    rows: tuple[tuple[str, str], ...] = ()

    @property
    def cause(self) -> str:
        """The text without the values that differ between messages about the same problem."""
        return cause_of(self.text)


class HangReported(HeldUp):
    """No rank makes progress. The text has several lines: a sentence, a row for each place of ranks, and advice."""

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


class ProgressAgain(Record):
    """The run makes progress after a hang was reported."""


class LinesOmitted(Record):
    """Lines that followed the first failure were not shown."""


class RunEnded(Record):
    """The run has finished. The level is `warning` unless the run succeeded."""


class FirstFailure(Record):
    """Why the run failed: what failed first, its error and last lines, and what to do."""

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


def cause_of(text: str) -> str:
    """Returns the text of a problem without pod names, uids, positions, numbers and the kubelet's back-off.

    Messages about the same problem differ in these values. For example, the problem may later affect more pods of the
    run. A pod that replaces another pod has a new name.

    >>> cause_of("no room for pod train-node-0-0-x7k2p: 2 Insufficient cpu")
    'no room for pod: 0 Insufficient cpu'
    >>> cause_of("no room for pod train-node-0-1-bd4fv on gpu-4 and 12 more: 1 Insufficient cpu")
    'no room for pod: 0 Insufficient cpu'
    >>> cause_of("node gpu-4 does not answer; pod train-node-0-0-x7k2p on gpu-4 may be lost.")
    'node gpu-4 does not answer; pod may be lost.'
    >>> cause_of("the run waits in queue team at position 3: insufficient quota for cpu")
    'the run waits in queue team: insufficient quota for cpu'
    """
    for pattern, replacement in _VARIABLE:
        text = pattern.sub(replacement, text)
    return text


def new_position(held: HeldUp, waiting: Waiting) -> HeldUp:
    """Returns a record that states only the position of a run. The reason `held` was presented before."""
    return replace(held, text=f"queued: now at position {waiting.position} in queue {waiting.queue}")


def held_up(status: RunStatus, flags: str | None = None) -> HeldUp | None:
    """Returns the problem that keeps a run from making progress, or None if there is none.

    `flags` are those of `command_for`.
    """
    waiting, trouble = status.waiting, status.trouble
    if status.phase.final:
        return None
    if waiting is None and trouble is None:
        return hang_reported(status, flags)
    if waiting is not None:
        why = queue_sentence(waiting)
        level: Literal["info", "warning"] = "warning" if waiting.inadmissible else "info"
        return HeldUp(f"queued: {why}", level, (("queued", why),))
    assert trouble is not None
    rows = (("trouble", what_happened(trouble)), ("events", "; ".join(trouble.events)), ("advice", trouble.advice))
    known = tuple((title, text) for title, text in rows if text)
    return HeldUp(trouble_sentence(trouble), "warning", known)


def hang_reported(status: RunStatus, flags: str | None = None) -> HangReported | None:
    """Returns the hang of a running run, or None if there is none. `flags` are those of `command_for`."""
    if status.phase.final or status.hang is None:
        return None
    rows = hang_rows(status, flags)
    return HangReported("\n".join(hang_lines(rows)), "warning", rows)


def place_of_hang(hang: Hang) -> str:
    """Returns what distinguishes a hang from other hangs of the run: its class, and the ranks that are the cause.

    A hang is reported again if this value changes, or if the pause has become twice as long.
    """
    ranks = "; ".join(ranks_named(group.ranks) for group in hang.guilty)
    return f"{hang.kind.value}: {ranks}"[:_PLACE]
