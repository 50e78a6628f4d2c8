"""Recognises lines that an earlier triggerer wrote to a task's log after its last note. Pure.

The triggerer that continues at that note reads these lines again, each source's in the same order, and skips them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from stepset_airflow.airflow_internals import SECRET_MASK

_PHASE = re.compile(r"run \S+: ")


class LogDeduplicator:
    """Texts of a task's log, each to be skipped as often as it was written.

    Attributes:
        phase: the last line that reports the run's phase; empty: none.
        notes: all other texts, except ranks' lines and progress.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.phase = ""
        self.notes = set[str]()
        self._left: dict[str, deque[str]] = {}
        for text in texts:
            kind = _kind(text)
            if kind:
                self._left.setdefault(kind, deque()).append(text)
            elif _PHASE.match(text):
                self.phase = text
            else:
                self.notes.add(text)

    def has(self, text: str) -> bool:
        """Returns whether a text was written before; drops it and all earlier texts of its kind."""
        if not (kind := _kind(text)):
            return text in self.notes
        left = self._left.get(kind)
        while left:
            if _same(left.popleft(), text):
                return True
        return False


def _same(written: str, text: str) -> bool:
    """Returns whether `written` is `text`, or `text` with secrets masked as in Airflow's log."""
    if SECRET_MASK not in written:
        return written == text
    return re.fullmatch(re.escape(written).replace(re.escape(SECRET_MASK), ".*"), text, re.DOTALL) is not None


def _kind(text: str) -> str:
    """Returns the kind of a text: texts of one kind keep their order; empty: the text is written only once."""
    if text.startswith("["):
        return text.partition("]")[0]
    return "progress" if text.startswith("progress: ") else ""
