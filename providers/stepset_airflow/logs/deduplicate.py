"""Detects lines that an earlier triggerer has already written to a task's log.

The earlier triggerer stores its position in the log at intervals. The next triggerer continues at the last stored
position. After that position, the earlier triggerer may have written further lines, which the next triggerer must skip.
The lines of each source are written in the same order by both triggerers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from stepset_airflow.airflow_internals import SECRET_MASK

_PHASE = re.compile(r"run \S+: ")


class LogDeduplicator:
    """The messages that an earlier triggerer has written to a task's log. The next triggerer must skip these messages.

    Attributes:
        phase: the last message that reports the phase of the run. Empty if no message reports a phase.
        other: the messages that are neither lines of ranks, nor reports of the phase, nor reports of progress.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.phase = ""
        self.other = set[str]()
        self._left: dict[str, deque[str]] = {}
        for text in texts:
            kind = _kind(text)
            if kind:
                self._left.setdefault(kind, deque()).append(text)
            elif _PHASE.match(text):
                self.phase = text
            else:
                self.other.add(text)

    def consume(self, text: str) -> bool:
        """Returns whether the earlier triggerer has written the message `text`.

        The method compares `text` only with messages of the same kind. The method discards these messages up to and
        including `text`. If none of these messages is `text`, the method discards all messages of this kind.
        """
        if not (kind := _kind(text)):
            return text in self.other
        left = self._left.get(kind)
        while left:
            if _same(left.popleft(), text):
                return True
        return False


def _same(written: str, text: str) -> bool:
    """Returns whether `written` is equal to `text`, apart from secrets that Airflow has masked in `written`."""
    if SECRET_MASK not in written:
        return written == text
    first, *between, last = written.split(SECRET_MASK)
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    # Only the first occurrence of each piece is tried, because it leaves the most characters for the next pieces.
    at, end = len(first), len(text) - len(last)
    for piece in between:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _kind(text: str) -> str:
    """Returns the kind of a message. Messages of the same kind are always written in the same order.

    The kind of a rank's line is the source of the line. The kind of a progress report is `progress`. The kind of every
    other message is an empty string. Such a message is written only once.
    """
    if text.startswith("["):
        return text.partition("]")[0]
    return "progress" if text.startswith("progress: ") else ""
