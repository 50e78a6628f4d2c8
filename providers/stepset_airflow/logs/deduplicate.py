"""Recognises lines that an earlier triggerer wrote to a task's log after it last stored its position. Pure.

The next triggerer writes the lines of the pods' logs that follow that position. The lines that the earlier triggerer
wrote are among them, in the same order for each source; the next one must skip them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from stepset_airflow.airflow_internals import SECRET_MASK

_PHASE = re.compile(r"run \S+: ")


class LogDeduplicator:
    """Texts that an earlier triggerer wrote to a task's log, and that the next one must skip.

    Attributes:
        phase: the last text that reports the run's phase; empty: none.
        other: all other texts, except ranks' lines and progress.
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
        """Returns whether `text` was written; discards the written texts of its kind up to `text`, or all if not."""
        if not (kind := _kind(text)):
            return text in self.other
        left = self._left.get(kind)
        while left:
            if _same(left.popleft(), text):
                return True
        return False


def _same(written: str, text: str) -> bool:
    """Returns whether `written` is `text`, or `text` with secrets masked as in Airflow's log."""
    if SECRET_MASK not in written:
        return written == text
    first, *between, last = written.split(SECRET_MASK)
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    # The first occurrence of each piece leaves the most text for the next pieces, so none has to be tried twice.
    at, end = len(first), len(text) - len(last)
    for piece in between:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _kind(text: str) -> str:
    """Returns the kind of a text, within which texts keep their order; empty for a text that is written only once."""
    if text.startswith("["):
        return text.partition("]")[0]
    return "progress" if text.startswith("progress: ") else ""
