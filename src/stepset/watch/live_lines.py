"""Combines the lines of a followed run with the states of its incomplete lines, such as progress bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepset.run_status import LogLine
from stepset.watch.lines import Batch, OpenLine

LiveLine = LogLine | OpenLine
"""A complete line, or what an incomplete line currently shows. An `OpenLine` with an empty text means that the source
has no incomplete line."""


def open_states(before: Mapping[str, str], batch: Batch) -> dict[str, str]:
    """Returns the state of each source's incomplete line after a chunk of output.

    If the chunk contains a complete line of a source, or a part of such a line, the state of this source is removed.

    Args:
        batch: the content of the chunk.
    """
    states, at = dict(before), 0
    for position, item in (*batch.between, (len(batch.lines), None)):
        for head, _ in batch.lines[at:position] if states else ():
            states.pop(head.source, None)
        at = position
        if isinstance(item, OpenLine):
            states[item.source] = item.text
    return states


class LiveLines:
    """Adds the changes of incomplete lines to the complete lines of a run."""

    def __init__(self, sources: frozenset[str] | None) -> None:
        self._sources = sources
        self._shown: dict[str, str] = {}

    def block(self, lines: Iterable[LogLine], states: Mapping[str, str]) -> list[LiveLine]:
        """Returns complete lines, and then the states of incomplete lines that changed since the last block."""
        sources = self._sources
        found: list[LiveLine] = [line for line in lines if sources is None or line.source in sources]
        wanted = {source: text for source, text in states.items() if sources is None or source in sources}
        changed = {**dict.fromkeys(self._shown, ""), **wanted}
        found += [OpenLine(source, text) for source, text in changed.items() if text != self._shown.get(source)]
        self._shown = wanted
        return found
