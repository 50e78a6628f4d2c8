"""Recognises lines that a former triggerer has written to a task's log since its last note. Pure.

A triggerer that continues at that note reads the same lines again, each source's in the same order; those that are
written already are left out.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from stepset_airflow.airflow_internals import SECRET_MASK

_PHASE = re.compile(r"run \S+: ")


class LogDeduplicator:
    """Texts of a task's log that may be repeated, each as often as it was written.

    Attributes:
        phase: the last line on the run's phase; empty: none.
        notes: everything else that is not a line or progress.
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
        """Whether a text is written already; marks it and all texts of its kind before it as read again."""
        if not (kind := _kind(text)):
            return text in self.notes
        left = self._left.get(kind)
        while left:
            if _same(left.popleft(), text):
                return True
        return False  # the former triggerer has not written this line


def _same(written: str, text: str) -> bool:
    """Whether `written` is `text` with secrets masked: only Airflow's log masks them."""
    if SECRET_MASK not in written:
        return written == text
    return re.fullmatch(re.escape(written).replace(re.escape(SECRET_MASK), ".*"), text, re.DOTALL) is not None


def _kind(text: str) -> str:
    """The kind of a text: texts of one kind are written in order; empty: the text comes only once."""
    if text.startswith("["):
        return text.partition("]")[0]
    return "progress" if text.startswith("progress: ") else ""
