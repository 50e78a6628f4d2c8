"""What a triggerer that is no more has written to a task's log since its last note: the log itself says it. Pure.

Used by task_log.py, of what trigger_log.py reads. Whoever goes on where that note stands comes by the same lines again,
each source's in the same order; those that are written already are left out.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

_PHASE = re.compile(r"run \S+: ")
_MASK = "***"
"""What Airflow writes in the place of a secret; only where it writes, so that we do not know what stands behind it."""


class Written:
    """Texts of a task's log that come again, each for as often as it was written.

    Args:
        texts: as they were written, in their order; others of the same log may be among them.

    Attributes:
        phase: the last line on the phase that the run is in; empty: there is none.
        notes: what else was said.
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
        """Whether a text that comes now is written already; it counts as having come, and so does all before it."""
        if not (kind := _kind(text)):
            return text in self.notes
        left = self._left.get(kind)
        while left:
            if _same(left.popleft(), text):
                return True
        return False  # whoever wrote has not come as far as this line


def _same(written: str, text: str) -> bool:
    if _MASK not in written:
        return written == text
    return re.fullmatch(re.escape(written).replace(re.escape(_MASK), ".*"), text, re.DOTALL) is not None


def _kind(text: str) -> str:
    """Lines of a kind are written in an order of their own; empty: what comes once."""
    if text.startswith("["):
        return text.partition("]")[0]
    return "progress" if text.startswith("progress: ") else ""
